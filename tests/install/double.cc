// Learns y = 2x.
#include <cmath>
#include <cstdio>

#include <aicf/aicf.h>

int main() {
  using namespace aicf;
  Model m;
  const Value x = m.input("x", {f32, {8, 1}}), y = m.input("y", {f32, {8, 1}});
  const Value guess = m.add(nn::Linear(1), x, "fc");
  Program program = compile(m, {.loss = mse(guess, y), .optimizer = optim::SGD{.lr = 0.1}});
  const Tensor xs = Tensor::of<float>({8, 1}, {-2, -1.5, -1, -0.5, 0.5, 1, 1.5, 2});
  const Tensor ys = Tensor::of<float>({8, 1}, {-4, -3, -2, -1, 1, 2, 3, 4});
  for (int step = 0; step < 100; ++step) program.step({{"x", xs}, {"y", ys}});
  const double weight = program.read("fc.weight").item(), bias = program.read("fc.bias").item();
  std::printf("aicf %s: y = %.4f x + %.4f\n", version().c_str(), weight, bias);
  return std::fabs(weight - 2) < 1e-3 && std::fabs(bias) < 1e-3 ? 0 : 1;
}
