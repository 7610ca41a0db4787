// One thread computes one pack of neighbouring elements of the results, 16 bytes of the widest type.
#include "backend/cuda/elementwise.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/index_space.h"
#include "backend/cuda/scalar.h"

namespace aicf::backend::cuda {
namespace {

constexpr int64_t kPackBytes = 16;

// How a thread comes by the elements of an operand for its pack.
enum class Access {
  pack,      // neighbours in memory: one load
  repeated,  // the same element for all
  row,       // in one row of the result, `stride` apart
  apart,     // anywhere: each has coordinates of its own
};

struct Plan {
  IndexSpace space;  // strides: of the operands
  std::vector<Access> access;
  int64_t elements = 0;
  int64_t width = 1;    // elements of a pack
  bool rows = false;    // a pack lies within one row (the last axis)
  int64_t largest = 0;  // index or offset
};

bool is_dense(const IndexSpace& space, size_t operand) {
  int64_t stride = 1;
  for (size_t k = space.dims.size(); k-- > 0;) {
    if (space.strides[operand][k] != stride) return false;
    stride *= space.dims[k];
  }
  return true;
}

bool repeats(const std::vector<int64_t>& strides) {
  return std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 0; });
}

// Packs start at multiples of the width, so theirs do in memory too.
bool is_aligned(const Region::Operand& operand, const std::vector<int64_t>& strides, int64_t width) {
  return operand.offset % width == 0 &&
         std::all_of(strides.begin(), strides.end() - 1, [&](int64_t s) { return s % width == 0; });
}

Access access_of(const Plan& plan, const Region& region, size_t k) {
  const Region::Operand& operand = region.operands[k];
  const std::vector<int64_t>& strides = plan.space.strides[k];
  if (repeats(strides)) return Access::repeated;
  if (is_dense(plan.space, k)) return operand.offset % plan.width == 0 ? Access::pack : Access::apart;
  if (!plan.rows) return Access::apart;
  if (strides.back() == 0) return Access::repeated;
  return strides.back() == 1 && is_aligned(operand, strides, plan.width) ? Access::pack : Access::row;
}

Plan plan_of(const Region& region) {
  Plan plan;
  std::vector<std::vector<int64_t>> strides;
  for (const Region::Operand& o : region.operands) strides.push_back(o.strides);
  plan.space = merged(region.shape, std::move(strides));
  plan.elements = plan.largest = region.shape.elements();
  size_t widest = 1;
  for (const Region::Operand& o : region.operands) {
    if (!repeats(o.strides)) widest = std::max(widest, size_of(o.dtype));
  }
  for (const Region::Result& r : region.results) {
    const auto ops_value = static_cast<size_t>(r.value) - region.operands.size();
    widest =
        std::max(widest, size_of(static_cast<size_t>(r.value) < region.operands.size() ? region.operands[r.value].dtype
                                                                                       : region.ops[ops_value].result));
  }
  plan.width = kPackBytes / static_cast<int64_t>(widest);
  while (plan.width > plan.elements) plan.width /= 2;
  plan.rows = plan.space.dims.size() == 1 || plan.space.dims.back() % plan.width == 0;
  for (size_t k = 0; k < region.operands.size(); ++k) {
    int64_t last = region.operands[k].offset;
    for (size_t a = 0; a < plan.space.dims.size(); ++a) last += (plan.space.dims[a] - 1) * plan.space.strides[k][a];
    plan.largest = std::max(plan.largest, last);
    plan.access.push_back(access_of(plan, region, k));
  }
  return plan;
}

// The text of one kernel, part by part.
class Writer {
 public:
  Writer(const Region& region, const Plan& plan) : region_(region), plan_(plan), index_(plan.largest) {}

  Generated kernel() {
    const Grid grid = grid_for((plan_.elements + plan_.width - 1) / plan_.width);
    Generated g;
    g.what = region_.what;
    g.blocks = grid.blocks;
    g.threads = grid.threads;
    compute();
    start(grid.threads);
    for (size_t k = 0; k < region_.operands.size(); ++k) {
      const Region::Operand& o = region_.operands[k];
      g.params.push_back({fmt::format("const {}* x{}", type(o.dtype), k), o.buffer});
      load(k);
    }
    for (size_t r = 0; r < region_.results.size(); ++r) {
      const char* t = type(result_dtype(r));
      g.params.push_back({fmt::format("{}* y{}", t, r), region_.results[r].buffer});
      body_ += fmt::format("Pack<{}, {}> b{};\n", t, plan_.width, r);
    }
    loop();
    for (size_t r = 0; r < region_.results.size(); ++r)
      body_ += fmt::format("store_pack(y{0} + i, b{0}{1});\n", r, tail());
    g.body = std::move(body_);
    return g;
  }

 private:
  // Copies move bits of any type.
  const char* type(DType dtype) const { return region_.ops.empty() ? bits_type(size_of(dtype)) : element_type(dtype); }
  DType result_dtype(size_t r) const { return scalars_.dtype(region_.results[r].value); }
  // The last pack may have fewer elements.
  bool partial() const { return plan_.elements % plan_.width != 0; }
  const char* tail() const { return partial() ? ", count" : ""; }
  bool any(Access access) const {
    return std::find(plan_.access.begin(), plan_.access.end(), access) != plan_.access.end();
  }

  void compute() {
    for (size_t k = 0; k < region_.operands.size(); ++k)
      scalars_.variable(region_.operands[k].dtype, fmt::format("v{}", k));
    for (const Region::Op& op : region_.ops) scalars_.apply(*op.def, op.result, op.values);
    for (const Region::Result& r : region_.results) elements_.push_back(scalars_.element(r.value));
  }

  void start(int threads) {
    const std::string n = index_.number(plan_.elements), width = index_.number(plan_.width);
    body_ +=
        fmt::format("const {} i = {} * {};\nif (i >= {}) return;\n", index_.type(), index_.thread(threads), width, n);
    if (partial()) body_ += fmt::format("const int count = {0} - i < {1} ? (int)({0} - i) : {1};\n", n, width);
    if (plan_.rows) body_ += index_.coordinates(plan_.space.dims, "i", "c");
  }

  // What is read once for the whole pack.
  void load(size_t k) {
    const Region::Operand& o = region_.operands[k];
    const std::vector<int64_t>& strides = plan_.space.strides[k];
    if (plan_.access[k] == Access::repeated) {
      body_ += fmt::format("const {} a{} = x{}[{}];\n", type(o.dtype), k, k, index_.offset(strides, "c", o.offset));
    } else if (plan_.access[k] == Access::pack) {
      // A dense one needs no rows.
      const std::string at =
          is_dense(plan_.space, k) ? "i + " + index_.number(o.offset) : index_.offset(strides, "c", o.offset);
      body_ += fmt::format("const Pack<{0}, {1}> a{2} = load_pack<{1}>(x{2} + ({3}){4});\n", type(o.dtype), plan_.width,
                           k, at, tail());
    } else if (plan_.access[k] == Access::row) {
      body_ += fmt::format("const {} o{} = {};\n", index_.type(), k, index_.offset(strides, "c", o.offset));
    }
  }

  void loop() {
    body_ += fmt::format("#pragma unroll\nfor (int j = 0; j < {}; ++j) {{\n", plan_.width);
    // Beyond the end the last element is read again.
    const std::string j = partial() ? "(j < count ? j : count - 1)" : "j";
    if (any(Access::apart)) {
      body_ += fmt::format("const {} e = i + {};\n", index_.type(), j);
      body_ += index_.coordinates(plan_.space.dims, "e", "d");
    }
    for (size_t k = 0; k < region_.operands.size(); ++k) {
      const Region::Operand& o = region_.operands[k];
      const std::vector<int64_t>& strides = plan_.space.strides[k];
      std::string element;
      switch (plan_.access[k]) {
        case Access::pack:
          element = fmt::format("a{}.at[j]", k);
          break;
        case Access::repeated:
          element = fmt::format("a{}", k);
          break;
        case Access::row:
          element = fmt::format("x{}[o{} + {} * {}]", k, k, j, index_.number(strides.back()));
          break;
        case Access::apart:
          element = fmt::format("x{}[{}]", k, index_.offset(strides, "d", o.offset));
          break;
      }
      body_ += fmt::format("const {} v{} = {};\n", type(o.dtype), k, element);
    }
    body_ += scalars_.statements();
    for (size_t r = 0; r < elements_.size(); ++r) body_ += fmt::format("b{}.at[j] = {};\n", r, elements_[r]);
    body_ += "}\n";
  }

  const Region& region_;
  const Plan& plan_;
  IndexText index_;
  Scalars scalars_;
  std::vector<std::string> elements_;  // of the results
  std::string body_;
};

}  // namespace

std::vector<Generated> elementwise(const Region& region) {
  if (region.shape.elements() == 0) return {};
  const Plan plan = plan_of(region);
  return {Writer(region, plan).kernel()};
}

std::vector<Generated> strided_copy(const KernelQuery& query, const std::vector<int64_t>& strides, int64_t offset) {
  Region region;
  region.what = ir::call_text(query.def, query.in);
  region.shape = query.out[0].shape;
  region.operands = {{query.out[0].dtype, strides, offset, 0}};
  region.results = {{0, 1}};
  return elementwise(region);
}

}  // namespace aicf::backend::cuda
