// The samples of the reductions: every place of the reduced axes, empty and long rows, ties, zeros.
#include "ops/reduce_samples.h"

#include <limits>

namespace aicf::ops {

using ir::Sample;
using Samples = std::vector<Sample>;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Sample over(const char* name, Shape x, std::vector<int64_t> axes, bool keepdims = false, DType dtype = f32) {
  Sample s;
  s.name = name;
  s.inputs = {{dtype, x}};
  s.attrs = {{"axes", std::move(axes)}};
  if (keepdims) s.attrs.set("keepdims", true);
  return s;
}

Samples common() {
  return {over("vector", {7}, {0}),
          over("last_axis", {3, 5}, {1}),
          over("first_axis", {3, 5}, {0}),
          over("middle_axis", {2, 3, 4}, {1}),
          over("two_axes", {2, 3, 4}, {1, 2}),
          over("all_axes", {2, 3, 2, 2}, {0, 1, 2, 3}),
          over("keepdims_last", {3, 5}, {1}, true),
          over("keepdims_first_two", {2, 3, 4}, {0, 1}, true),
          over("one", {1}, {0}),
          over("extent_one", {4, 1, 3}, {1}),
          over("no_rows", {0, 3}, {1}),
          over("no_columns", {3, 0}, {0}),
          over("i32", {3, 5}, {1}, false, i32),
          over("i64", {3, 5}, {0}, false, i64)};
}

// Lengths around the blocks a kernel may work in. Not for products, whose slope would leave the range of 16 bits.
Samples long_rows() {
  return {over("long_row", {2, 300}, {1}), over("long_column", {300, 3}, {0}), over("odd_row", {3, 67}, {1})};
}

Samples narrow_dtypes() {
  Sample truth = over("bool", {2, 3}, {1}, false, boolean);
  truth.values = {{0, Tensor::of<bool>({2, 3}, {false, true, false, true, true, true})}};
  return {truth, over("u8", {3, 5}, {1}, false, u8)};
}

Sample hand(const char* name, Shape shape, const std::vector<float>& x, std::vector<double> y) {
  return by_hand(name, {values(shape, x)}, {std::move(y)}, {{"axes", std::vector<int64_t>{shape.rank() - 1}}});
}

Samples join(std::initializer_list<Samples> lists) {
  Samples all;
  for (const Samples& l : lists) all.insert(all.end(), l.begin(), l.end());
  return all;
}

}  // namespace

Samples samples_reduce_sum() {
  return join({common(),
               long_rows(),
               {with_grad(hand("by_hand", {2, 3}, {1, 2, 3, -4, 5, 0.5f}, {6, 1.5})),
                over("nothing_gives_zero", {3, 0}, {1}), hand("infinity", {3}, {1, kInf, 2}, {kInf})}});
}

Samples samples_reduce_prod() {
  return join({common(),
               {with_grad(hand("by_hand", {2, 3}, {1, 2, 3, -4, 5, 0.5f}, {6, -10})),
                with_grad(hand("one_zero", {4}, {2, 0, 3, 4}, {0})),
                with_grad(hand("two_zeros", {2, 4}, {2, 0, 0, 4, 1, 2, 3, 4}, {0, 24})),
                with_grad(hand("all_zeros", {3}, {0, 0, 0}, {0})),
                with_grad(hand("odd_lengths", {5}, {1, 2, 1, 2, 1}, {4})), over("nothing_gives_one", {3, 0}, {1})}});
}

Samples samples_reduce_max() {
  return join({common(),
               long_rows(),
               narrow_dtypes(),
               {with_grad(hand("by_hand", {2, 3}, {1, 2, 3, -4, 5, 0.5f}, {3, 5})),
                hand("ties_share_the_gradient", {2, 4}, {3, 1, 3, 2, 1, 1, 1, 1}, {3, 1}),
                hand("infinities", {2, 2}, {-kInf, -kInf, -kInf, kInf}, {-kInf, kInf})}});
}

Samples samples_reduce_min() {
  return join({common(),
               long_rows(),
               narrow_dtypes(),
               {with_grad(hand("by_hand", {2, 3}, {1, 2, 3, -4, 5, 0.5f}, {1, -4})),
                hand("ties_share_the_gradient", {2, 4}, {3, 1, 1, 2, 1, 1, 1, 1}, {1, 1}),
                hand("infinities", {2, 2}, {kInf, kInf, -kInf, kInf}, {kInf, -kInf})}});
}

Samples samples_argmax() {
  const auto along = [](const char* name, Shape x, int64_t axis, bool keepdims = false, DType dtype = f32) {
    Sample s = over(name, x, {}, keepdims, dtype);
    s.attrs.erase("axes");
    s.attrs.set("axis", axis);
    return s;
  };
  Sample ties =
      by_hand("first_of_equals", {values({2, 4}, {1, 3, 3, 2, 5, 5, 5, 5})}, {{1, 0}}, {{"axis", int64_t{1}}});
  Sample infinities =
      by_hand("infinities", {values({2, 3}, {-kInf, -kInf, -kInf, 0, kInf, kInf})}, {{0, 1}}, {{"axis", int64_t{1}}});
  return {along("vector", {7}, 0),
          along("last_axis", {3, 5}, 1),
          along("first_axis", {3, 5}, 0),
          along("middle_axis", {2, 3, 4}, 1),
          along("keepdims", {2, 3, 4, 2}, 2, true),
          along("one", {1}, 0),
          along("no_rows", {0, 3}, 1),
          along("long_row", {2, 300}, 1),
          along("i32", {3, 5}, 1, false, i32),
          along("i64", {3, 5}, 0, false, i64),
          std::move(ties),
          std::move(infinities)};
}

}  // namespace aicf::ops
