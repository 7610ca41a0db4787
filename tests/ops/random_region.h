// Random bodies of fused ops, for tests that compare them with their ops one by one. What a region may hold is written
// down here a second time, so that a fault of the analysis is not in both.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "aicf/ops.h"
#include "ops/defs.h"
#include "ops/harness.h"
#include "ops/loops.h"
#include "ops/retype.h"

namespace aicf::test {

struct RandomRegion {
  std::shared_ptr<ir::Graph> body;
  std::vector<TensorType> inputs;
  std::vector<Tensor> operands;
};

class RegionMaker {
 public:
  enum class Kind { pointwise, row, reduce, epilogue };

  // `wide`: f64 too, which not every backend has.
  RegionMaker(uint64_t seed, bool wide) : random_(seed), wide_(wide) {}

  RandomRegion make() {
    region_.body = std::make_shared<ir::Graph>();
    const Kind kind = once_in(5) ? Kind::row : static_cast<Kind>(below(4));
    choose_space(kind);
    anchor_ = input({f32, {}});
    for (int64_t i = 1 + below(4); i > 0; --i) full_.push_back(leaf());
    if (kind == Kind::epilogue) full_.insert(full_.begin(), product());
    grow(2 + below(8));
    if (kind == Kind::row) rows();
    if (kind == Kind::reduce) reductions();
    results(kind);
    return std::move(region_);
  }

 private:
  using Dims = std::vector<int64_t>;

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool once_in(int64_t n) { return below(n) == 0; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<size_t>(below(static_cast<int64_t>(all.size())))];
  }
  static Shape shape_of(const Dims& dims) { return Shape(std::span<const int64_t>(dims)); }

  void choose_space(Kind kind) {
    const Dims small = {1, 2, 3, 4, 5, 7, 8, 16, 17}, some = {9, 31, 33, 64, 65, 100, 129, 257, 300};
    const Dims long_rows = {700, 1024, 1030, 4096, 4097, 5000, 9001};
    const int64_t rank = 1 + below(4), most = once_in(8) ? 200000 : 20000;
    int64_t elements = 1;
    for (int64_t i = 0; i < rank; ++i) {
      const bool last = i == rank - 1;
      int64_t extent = one_of(once_in(2) ? some : small);
      if (last && kind != Kind::epilogue && once_in(3)) extent = one_of(long_rows);
      if (elements * extent > most) extent = one_of(small);
      if (elements * extent > 4 * most) extent = 1;
      elements *= extent;
      space_.push_back(extent);
    }
    if (kind == Kind::epilogue && rank < 2) space_.insert(space_.begin(), 1 + below(40));
    const auto axes = static_cast<int64_t>(space_.size());
    first_ = below(axes);
    end_ = kind == Kind::row ? axes : first_ + 1 + below(axes - first_);
    dtypes_ = {f32};
    if (once_in(2)) dtypes_.push_back(once_in(2) ? bf16 : f16);
    if (once_in(4)) dtypes_.push_back(once_in(2) ? i32 : i64);
    if (wide_ && once_in(4)) dtypes_.push_back(f64);
    if (once_in(8)) dtypes_ = {once_in(2) ? bf16 : f16};
  }

  // --- operands ---------------------------------------------------------------------------------------------------

  double element(DType dtype) {
    if (dtype == boolean) return static_cast<double>(below(2));
    if (!is_float(dtype)) return static_cast<double>(below(7)) - (dtype == u8 ? 0 : 3);
    if (once_in(100)) return one_of<double>({0.0, -0.0, 1e-40, -3e-39, 1.0, -1.0, 300.0, -2000.0});
    return static_cast<double>(random_() >> 11) * 0x1p-51 - 2;
  }

  Value input(const TensorType& type) {
    Tensor data(type);
    for (int64_t i = 0; i < data.elements(); ++i) set_element(type.dtype, data.data(), i, element(type.dtype));
    return input(std::move(data));
  }
  Value input(Tensor data) {
    const std::string name = std::to_string(region_.inputs.size());
    region_.inputs.push_back(data.type());
    region_.operands.push_back(std::move(data));
    return region_.body->handle(region_.body->add_external(ir::Role::input, name, region_.inputs.back()));
  }

  // The space with some extents 1, and some of the first left out.
  Dims narrowed() {
    Dims dims = space_;
    const int64_t how = below(5);
    for (size_t i = 0; i < dims.size(); ++i) {
      const bool kept = static_cast<int64_t>(i) < first_ || static_cast<int64_t>(i) >= end_;
      if (how == 0 || (how == 1 && once_in(2)) || (how == 2 && !kept) || (how == 3 && kept)) dims[i] = 1;
    }
    while (once_in(2) && !dims.empty() && dims[0] == 1) dims.erase(dims.begin());
    return dims;
  }

  Value leaf() {
    const DType dtype = one_of(dtypes_);
    switch (below(10)) {
      case 0:
        return number();
      case 1:
        return permuted(dtype);
      case 2:
        return sliced(dtype);
      case 3:
        return flat(dtype);
      case 4:
        return gathered(dtype);
      case 5:
      case 6:
        return input({dtype, shape_of(narrowed())});
      default:
        return input({dtype, shape_of(space_)});
    }
  }

  Value number() {
    const std::vector<DType> types = {f32, bf16, f16, i32, i64, wide_ ? f64 : f32};
    Dims dims = once_in(2) ? space_ : narrowed();
    if (dims.empty()) dims = {1};
    return iota(anchor_, one_of(types), shape_of(dims), static_cast<int>(below(static_cast<int64_t>(dims.size()))));
  }

  Value flat(DType dtype) {
    const Value x = input({dtype, {shape_of(space_).elements()}});
    return reshape(once_in(2) ? unary(x) : x, shape_of(space_));
  }

  Value permuted(DType dtype) {
    std::vector<int> perm;
    for (size_t i = 0; i < space_.size(); ++i) perm.push_back(static_cast<int>(i));
    std::shuffle(perm.begin(), perm.end(), random_);
    Dims from(space_.size());
    for (size_t i = 0; i < perm.size(); ++i) from[static_cast<size_t>(perm[i])] = space_[i];
    const Value x = input({dtype, shape_of(from)});
    return transpose(once_in(2) ? unary(x) : x, perm);
  }

  Value sliced(DType dtype) {
    Dims from, start, limit, step;
    for (int64_t extent : space_) {
      const int64_t first = below(3), by = once_in(3) ? 2 : 1;
      start.push_back(first);
      step.push_back(by);
      limit.push_back(first + (extent - 1) * by + 1);
      from.push_back(limit.back() + below(3));
    }
    const Value x = input({dtype, shape_of(from)});
    return slice(once_in(2) ? unary(x) : x, start, limit, step);
  }

  // Indices out of range among them.
  Value gathered(DType dtype) {
    const int64_t extent = 1 + below(9);
    const auto axis = static_cast<size_t>(below(static_cast<int64_t>(space_.size())));
    const bool batched = once_in(2);
    Dims from = space_, picks = {space_[axis]};
    from[axis] = extent;
    if (batched) picks = Dims(space_.begin(), space_.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
    Tensor index(TensorType{once_in(2) ? i32 : i64, shape_of(picks)});
    for (int64_t i = 0; i < index.elements(); ++i) {
      set_element(index.dtype(), index.data(), i,
                  static_cast<double>(once_in(20) ? extent + 1 : below(extent + 1) - once_in(9)));
    }
    return gather(input({dtype, shape_of(from)}), input(std::move(index)), static_cast<int>(axis),
                  batched ? static_cast<int>(axis) : 0);
  }

  Value product() {
    const bool ta = once_in(3), tb = once_in(2), shared = once_in(2);
    const size_t rank = space_.size();
    const int64_t m = space_[rank - 2], n = space_[rank - 1], k = 1 + below(40);
    const DType dtype = wide_ && once_in(6) ? f64 : one_of<DType>({f32, f32, bf16, f16});
    Dims a(space_.begin(), space_.end() - 2), b = shared ? Dims{} : a;
    a.insert(a.end(), {ta ? k : m, ta ? m : k});
    b.insert(b.end(), {tb ? n : k, tb ? k : n});
    const Value left = input({dtype, shape_of(a)}), right = input({dtype, shape_of(b)});
    if (!is_float(dtype) || size_of(dtype) != 2 || once_in(2)) return matmul(left, right, ta, tb);
    ir::Attrs attrs = {{"out", f32}};
    if (ta) attrs.set("ta", true);
    if (tb) attrs.set("tb", true);
    return ir::emit(ops::matmul_def, {left, right}, attrs);
  }

  // --- ops --------------------------------------------------------------------------------------------------------

  Value as(Value x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

  Value unary(Value x) {
    if (x.dtype() == boolean) return logical_not(x);
    if (x.dtype() == u8) return cast(x, i32);
    if (!is_float(x.dtype())) return once_in(2) ? neg(x) : abs(x);
    switch (below(12)) {
      case 0:
        return neg(x);
      case 1:
        return abs(x);
      case 2:
        return exp(tanh(x));
      case 3:
        return tanh(x);
      case 4:
        return sigmoid(x);
      case 5:
        return relu(x);
      case 6:
        return sqrt(abs(x));
      case 7:
        return x * 1.7;
      case 8:
        return 0.3 - x;
      case 9:
        return floor(x);
      case 10:
        return isfinite(x);
      default:
        return x + 0.11;
    }
  }

  Value binary(Value a, Value b) {
    if (a.dtype() == boolean) return once_in(2) ? logical_and(a, b) : logical_or(a, b);
    if (a.dtype() == u8) return greater(a, b);
    switch (below(9)) {
      case 0:
      case 1:
        return a + b;
      case 2:
        return a - b;
      case 3:
      case 4:
        return a * b;
      case 5:
        return maximum(a, b);
      case 6:
        return minimum(a, b);
      case 7:
        return once_in(2) ? less(a, b) : equal(a, b);
      default:
        return is_float(a.dtype()) ? a / (abs(b) + 0.5) : a + b;
    }
  }

  Value step(const std::vector<Value>& pool) {
    const Value a = one_of(pool), b = one_of(pool);
    switch (below(8)) {
      case 0:
      case 1:
        return unary(a);
      case 2:
        return cast(a, once_in(8) ? boolean : one_of(dtypes_));
      case 3:
        return select(as(one_of(pool), boolean), a, as(b, a.dtype()));
      default:
        return binary(a, as(b, a.dtype()));
    }
  }

  void grow(int64_t ops) {
    for (int64_t i = 0; i < ops; ++i) full_.push_back(step(full_));
  }

  Value over_space(Value x) { return x.shape() == shape_of(space_) ? x : broadcast(x, shape_of(space_)); }

  Value reduced(Value x, const std::vector<int>& axes, bool keepdims) {
    if (x.dtype() == boolean || x.dtype() == u8) {
      if (once_in(2)) return once_in(2) ? max(x, axes, keepdims) : min(x, axes, keepdims);
      x = cast(x, i32);
    }
    switch (below(6)) {
      case 0:
        return max(x, axes, keepdims);
      case 1:
        return min(x, axes, keepdims);
      case 2:
        return prod(is_float(x.dtype()) ? sigmoid(x) + 0.3 : x, axes, keepdims);
      default:
        return sum(x, axes, keepdims);
    }
  }

  std::vector<int> reduced_axes() const {
    std::vector<int> axes;
    for (int64_t k = first_; k < end_; ++k) axes.push_back(static_cast<int>(k));
    return axes;
  }

  // A value of the whole space, with the elements of one that was used before, if there is one.
  Value some_full() {
    for (int tries = 0; tries < 8; ++tries) {
      const Value x = one_of(full_);
      if (x.shape() == shape_of(space_)) return x;
    }
    return over_space(one_of(full_));
  }

  void rows() {
    for (int64_t i = 1 + below(3); i > 0; --i) {
      Value r = reduced(some_full(), reduced_axes(), true);
      if (once_in(2)) r = unary(r);
      kept_.push_back(r);
      full_.push_back(r);
      grow(1 + below(4));
    }
    if (first_ == 0 || once_in(2)) return;
    std::vector<int> before;
    for (int64_t k = 0; k < first_; ++k) before.push_back(static_cast<int>(k));
    for (int64_t i = 1 + below(2); i > 0; --i) columns_.push_back(reduced(some_full(), before, once_in(2)));
  }

  void reductions() {
    for (int64_t i = 1 + below(3); i > 0; --i) kept_.push_back(reduced(some_full(), reduced_axes(), true));
    Dims dims = space_;
    for (int64_t k = first_; k < end_; ++k) dims[static_cast<size_t>(k)] = 1;
    if (once_in(2)) kept_.push_back(input({one_of(dtypes_), shape_of(dims)}));
    if (once_in(3)) kept_.push_back(input({one_of(dtypes_), {}}));
    for (int64_t i = below(5); i > 0; --i) kept_.push_back(step(kept_));
  }

  void results(Kind kind) {
    std::vector<Value> all = columns_;
    Dims dims = space_;
    for (int64_t k = first_; k < end_; ++k) dims[static_cast<size_t>(k)] = 1;
    const Shape kept = shape_of(dims);
    if (kind == Kind::reduce || (kind == Kind::row && once_in(2))) {
      for (int64_t i = 1 + below(2); i > 0; --i) {
        const Value x = i == 1 ? kept_.back() : one_of(kept_);
        if (x.shape() == kept) all.push_back(x);
      }
    }
    if (kind != Kind::reduce || once_in(2)) {
      for (int64_t i = 1 + below(3); i > 0; --i) {
        const Value x = i == 1 ? full_.back() : one_of(full_);
        all.push_back(over_space(x));
      }
    }
    if (kind == Kind::epilogue && once_in(3)) all.push_back(full_.front());
    if (all.empty()) all.push_back(over_space(full_.back()));
    std::set<ir::ValueId> seen;
    for (const Value& x : all) {
      if (!seen.insert(x.id()).second) continue;
      region_.body->add_output(std::to_string(seen.size() - 1), x.id());
    }
  }

  std::mt19937_64 random_;
  bool wide_ = false;
  RandomRegion region_;
  Dims space_;
  int64_t first_ = 0, end_ = 0;  // the axes reduced over, if any
  std::vector<DType> dtypes_;
  Value anchor_;
  std::vector<Value> full_;  // broadcast to the space
  std::vector<Value> kept_;  // of one element along the reduced axes
  std::vector<Value> columns_;
};

inline RandomRegion random_region(uint64_t seed, bool wide) { return RegionMaker(seed, wide).make(); }

// Calls fn(case) for the regions of the first seeds of which every backend has the same bits: without f64, and without
// products.
template <class Fn>
void each_exact_region(uint64_t seeds, Fn fn) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const RandomRegion region = random_region(seed, false);
    const auto loops = ops::loops_of(*region.body);
    if (!loops || loops->kind == ops::Loops::Kind::epilogue) continue;
    ir::Sample sample;
    sample.name = "random region " + std::to_string(seed);
    sample.region = region.body;
    sample.inputs = region.inputs;
    for (size_t i = 0; i < region.operands.size(); ++i) {
      sample.values.emplace_back(static_cast<int>(i), region.operands[i]);
    }
    fn(OpCase{&ops::fused_def, std::move(sample), region.inputs[0].dtype});
  }
}

}  // namespace aicf::test
