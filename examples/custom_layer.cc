// A layer of one's own, a gradient of one's own, and saving and loading: trains y = sin(3x) on noise-free samples.
#include <cmath>
#include <cstdio>

#include <aicf/aicf.h>

namespace {

using namespace aicf;

// x (…, in) → cos(x·Wᵀ + b) (…, features): random-feature layers in the manner of Rahimi & Recht (2007), trained.
class CosineFeatures : public nn::Layer {
 public:
  explicit CosineFeatures(int64_t features) : Layer(std::make_shared<Emit>(features)) {}

 private:
  class Emit : public Impl {
   public:
    explicit Emit(int64_t features) : features_(features) {}
    std::string kind() const override { return "cosine_features"; }
    Value emit(const nn::LayerContext& context, const std::vector<Value>& inputs) const override {
      const Value x = inputs[0];
      const int64_t in = x.shape()[x.shape().rank() - 1];
      const Value w = context.param("weight", {x.dtype(), {features_, in}}, Init::normal(0, 2));
      const Value b = context.param("bias", {x.dtype(), {features_}}, Init::uniform(-3, 3));
      return cos(matmul(x, w, false, true) + b);
    }

   private:
    int64_t features_;
  };
};

// The identity, whose cotangent is clipped to [-1, 1] on the way back.
Value clip_gradient(Value x) {
  return with_gradient(
      {x}, [](const std::vector<Value>& in) { return in[0] * 1.0; },
      [](const std::vector<Value>&, Value, Value dy) {
        return std::vector<Value>{maximum(minimum(dy, literal(dy, 1)), literal(dy, -1))};
      });
}

struct Network {
  Model model{7};
  Value loss;
  Network() {
    const Value x = model.input("x", {f32, {32, 1}}), y = model.input("y", {f32, {32, 1}});
    const Value h = clip_gradient(model.add(CosineFeatures(64), x, "features"));
    loss = mse(model.add(nn::Linear(1), h, "head"), y);
  }
};

}  // namespace

int main() {
  Network net;
  Program train = compile(
      net.model, {.loss = net.loss, .optimizer = optim::AdamW{.lr = 1e-2, .schedule = optim::Schedule::cosine(600)}});
  Tensor x(TensorType{f32, {32, 1}}), y(TensorType{f32, {32, 1}});
  double loss = 0;
  for (int step = 0; step < 600; ++step) {
    for (int i = 0; i < 32; ++i) {
      x.as<float>()[i] = static_cast<float>((i * 61 + step * 17) % 200) / 100 - 1;
      y.as<float>()[i] = std::sin(3 * x.as<float>()[i]);
    }
    loss = train.step({{"x", x}, {"y", y}}).scalar("loss");
    if ((step + 1) % 200 == 0) std::printf("step %d  loss %.6f\n", step + 1, loss);
  }

  write_safetensors("custom_layer.safetensors", train.snapshot());
  Network again;
  Program resumed = compile(again.model, {.loss = again.loss, .optimizer = optim::AdamW{.lr = 1e-2}});
  resumed.load(read_safetensors("custom_layer.safetensors").tensors, {.strict = false});
  std::remove("custom_layer.safetensors");
  const double again_loss = resumed.step({{"x", x}, {"y", y}}).scalar("loss");
  std::printf("loaded again, step %.0f: %.6f\n", resumed.read("steps.applied").item(), again_loss);
  return loss < 1e-3 ? 0 : 1;
}
