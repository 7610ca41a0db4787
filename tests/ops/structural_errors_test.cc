// What the structural ops say about operands that do not fit: one line, the call with its types, expected and got.
#include <gtest/gtest.h>

#include <climits>
#include <functional>

#include "aicf/ops.h"
#include "ops/defs.h"
#include "ops/rng_bits.h"

namespace aicf::test {
namespace {

struct Mistake {
  const char* message;
  const char* hint;  // a part of it; "" for none
  std::function<void(ir::Graph&)> make;
};

Value operand(ir::Graph& graph, TensorType type) {
  return graph.handle(graph.add_external(ir::Role::input, "x" + std::to_string(graph.num_values()), type));
}
Value floats(ir::Graph& graph, Shape shape) { return operand(graph, {f32, shape}); }
Value ints(ir::Graph& graph, Shape shape) { return operand(graph, {i32, shape}); }

const Mistake kMistakes[] = {
    {"reshape(f32[2,3]): expected a shape of 6 elements, got [4] (4 elements)", "",
     [](ir::Graph& g) {
       reshape(floats(g, {2, 3}), {4});
     }},
    {"reshape(f32[6]): expected a shape as `shape` (shape with the negative extent -1), got [-1,3]", "",
     [](ir::Graph& g) {
       ir::emit(ops::reshape_def, {floats(g, {6})}, {{"shape", std::vector<int64_t>{-1, 3}}});
     }},
    {"flatten(f32[2]): expected an axis from 0 to 1, got 2", "", [](ir::Graph& g) { flatten(floats(g, {2}), 2); }},
    {"transpose(f32[2,3]): expected a permutation of the 2 axes, got [0,0]", "",
     [](ir::Graph& g) {
       transpose(floats(g, {2, 3}), {0, 0});
     }},
    {"transpose(f32[2,3]): expected a permutation of the 2 axes, got [1]", "",
     [](ir::Graph& g) {
       transpose(floats(g, {2, 3}), {1});
     }},
    {"transpose(f32[2,3]): expected a permutation of the 2 axes, got [0,-1]", "",
     [](ir::Graph& g) {
       transpose(floats(g, {2, 3}), {0, -1});
     }},
    {"broadcast(f32[3,2]): expected a shape that [3,2] broadcasts to, got [3,4]", "aligned at the right",
     [](ir::Graph& g) {
       broadcast(floats(g, {3, 2}), {3, 4});
     }},
    {"broadcast(f32[1,2]): expected a shape that [1,2] broadcasts to, got [2]", "aligned at the right",
     [](ir::Graph& g) {
       broadcast(floats(g, {1, 2}), {2});
     }},
    {"slice(f32[5]): expected start <= limit <= 5 on axis 0, got start 2, limit 6", "",
     [](ir::Graph& g) { slice(floats(g, {5}), {2}, {6}); }},
    {"slice(f32[5]): expected start <= limit <= 5 on axis 0, got start 4, limit 3", "",
     [](ir::Graph& g) { slice(floats(g, {5}), {4}, {3}); }},
    {"slice(f32[5]): expected no negative number in `start`, got [-1]", "",
     [](ir::Graph& g) { slice(floats(g, {5}), {-1}, {3}); }},
    {"slice(f32[5,2]): expected 2 numbers in `start`, one per axis, got [0]", "",
     [](ir::Graph& g) {
       slice(floats(g, {5, 2}), {0}, {3});
     }},
    {"slice(f32[5]): expected 1 positive numbers in `step`, one per axis, got [0]", "",
     [](ir::Graph& g) { slice(floats(g, {5}), {0}, {3}, {0}); }},
    {"slice(f32[5,2]): expected 2 positive numbers in `step`, one per axis, got [1]", "",
     [](ir::Graph& g) {
       slice(floats(g, {5, 2}), {0, 0}, {3, 2}, {1});
     }},
    {"concat(f32[2,3], f32[2,4], f32[3,3]): expected parts that differ from f32[2,3] on axis 1 alone, got f32[3,3]", "",
     [](ir::Graph& g) {
       concat({floats(g, {2, 3}), floats(g, {2, 4}), floats(g, {3, 3})}, 1);
     }},
    {"concat(f32[2], i32[2]): expected parts that differ from f32[2] on axis 0 alone, got i32[2]", "",
     [](ir::Graph& g) {
       concat({floats(g, {2}), ints(g, {2})}, 0);
     }},
    {"concat: expected an axis from -1 to 0, got 1", "", [](ir::Graph& g) { concat({floats(g, {2})}, 1); }},
    {"split(f32[6]): expected sizes that add up to 6, the extent of axis 0, got [2,3]", "",
     [](ir::Graph& g) {
       split(floats(g, {6}), std::vector<int64_t>{2, 3}, 0);
     }},
    {"split(f32[6]): expected sizes that add up to 6, the extent of axis 0, got [7,-1]", "",
     [](ir::Graph& g) {
       split(floats(g, {6}), std::vector<int64_t>{7, -1}, 0);
     }},
    {"split(f32[6]): expected a number of pieces that divides 6, the extent of axis 0, got 4", "give the sizes",
     [](ir::Graph& g) { split(floats(g, {6}), 4, 0); }},
    {"pad(f32[2]): expected 1 numbers in `high`, one per axis, got [1,1]", "",
     [](ir::Graph& g) {
       pad(floats(g, {2}), {1}, {1, 1});
     }},
    {"pad(i32[2]): expected a value that i32 can hold, got 0.5", "",
     [](ir::Graph& g) { pad(ints(g, {2}), {1}, {1}, 0.5); }},
    {"pad(f32[2]): expected extents that fit 64 bits, got low [9223372036854775807], high [0]", "",
     [](ir::Graph& g) { pad(floats(g, {2}), {LLONG_MAX}, {0}); }},
    {"iota(): expected a number type, got bool", "", [](ir::Graph& g) { iota(floats(g, {}), boolean, {2}); }},
    {"iota(): expected at most 256 elements along the axis in u8, got 257", "",
     [](ir::Graph& g) { iota(floats(g, {}), u8, {257}); }},
    {"iota: expected an axis from -1 to 0, got 1", "", [](ir::Graph& g) { iota(floats(g, {}), f32, {2}, 1); }},
    {"gather(f32[4,3], f32[2]): expected an i32 or i64 index, got f32[2]", "cast",
     [](ir::Graph& g) {
       gather(floats(g, {4, 3}), floats(g, {2}));
     }},
    {"gather(f32[4,3], i32[5]): expected an index of extent 4 on batch axis 0, got i32[5]", "",
     [](ir::Graph& g) {
       gather(floats(g, {4, 3}), ints(g, {5}), 1, 1);
     }},
    {"gather(f32[4,3], i32[4]): expected batch_dims from 0 to 0, got 1", "",
     [](ir::Graph& g) {
       gather(floats(g, {4, 3}), ints(g, {4}), 0, 1);
     }},
    {"scatter_add(f32[4,3], i32[2], f32[2,4]): expected updates f32[2,3], got f32[2,4]", "",
     [](ir::Graph& g) {
       scatter_add(floats(g, {4, 3}), ints(g, {2}), floats(g, {2, 4}));
     }},
    {"scatter_add(bool[4], i32[2], bool[2]): expected a base of floats, i32 or i64, got bool[4]", "",
     [](ir::Graph& g) {
       scatter_add(operand(g, {boolean, {4}}), ints(g, {2}), operand(g, {boolean, {2}}));
     }},
    {"matmul(f32[64,128], f32[100,10]): expected axis 0 of b to be 128, as axis 1 of a is, got 100", "",
     [](ir::Graph& g) {
       matmul(floats(g, {64, 128}), floats(g, {100, 10}));
     }},
    {"matmul(f32[64,128], f32[10,128]): expected axis 0 of b to be 128, as axis 1 of a is, got 10",
     "transpose_b = true",
     [](ir::Graph& g) {
       matmul(floats(g, {64, 128}), floats(g, {10, 128}));
     }},
    {"matmul(f32[64,128], f32[128,10]): expected axis 1 of b to be 128, as axis 1 of a is, got 10", "leave transpose_b",
     [](ir::Graph& g) {
       matmul(floats(g, {64, 128}), floats(g, {128, 10}), false, true);
     }},
    {"matmul(f32[128], f32[128,10]): expected operands of rank 2 or more, got f32[128]", "reshape",
     [](ir::Graph& g) {
       matmul(floats(g, {128}), floats(g, {128, 10}));
     }},
    {"matmul(f32[2,3,4], f32[5,4,6]): expected leading axes that broadcast, got [2] and [5]", "",
     [](ir::Graph& g) {
       matmul(floats(g, {2, 3, 4}), floats(g, {5, 4, 6}));
     }},
    {"matmul(f32[3,4], i32[4,6]): expected two operands of one float type, got f32 and i32", "cast",
     [](ir::Graph& g) {
       matmul(floats(g, {3, 4}), ints(g, {4, 6}));
     }},
    {"rng_bits(i32[], i64[]): expected seed and offset of type i64[], got i32[]", "",
     [](ir::Graph& g) {
       ops::rng_bits(ints(g, {}), operand(g, {i64, {}}), {3}, 0);
     }},
    {"rng_bits(i64[], i64[]): expected an `ordinal` in [0,1048576), got 1048576", "",
     [](ir::Graph& g) {
       ops::rng_bits(operand(g, {i64, {}}), operand(g, {i64, {}}), {3}, 1 << 20);
     }},
    {"rng_bits(i64[], i64[]): expected at most 35184372088832 elements, got [35184372088833]", "",
     [](ir::Graph& g) {
       ops::rng_bits(operand(g, {i64, {}}), operand(g, {i64, {}}), {(int64_t{1} << 45) + 1}, 0);
     }},
    {"dropout(f32[2], i64[], f32[2]): expected seed and offset of type i64[], got f32[2]", "",
     [](ir::Graph& g) {
       ir::emit(ops::dropout_def, {floats(g, {2}), operand(g, {i64, {}}), floats(g, {2})},
                {{"ordinal", int64_t{0}}, {"p", 0.5}});
     }},
    {"dropout(f32[2], i64[], i64[]): expected p in [0, 1), got 1", "",
     [](ir::Graph& g) {
       const Value key = operand(g, {i64, {}}), offset = operand(g, {i64, {}});
       ir::emit(ops::dropout_def, {floats(g, {2}), key, offset}, {{"ordinal", int64_t{0}}, {"p", 1.0}});
     }},
    {"attention(f32[2,3,4], f32[2,5,3], f32[2,5,4]): expected k of shape [2,3,4] but for axis 1, got f32[2,5,3]",
     "(…, Tq, d)",
     [](ir::Graph& g) {
       attention(floats(g, {2, 3, 4}), floats(g, {2, 5, 3}), floats(g, {2, 5, 4}));
     }},
    {"attention(f32[2,3,4], f32[2,5,4], f32[3,5,4]): expected v of shape [2,5,4] but for axis 2, got f32[3,5,4]",
     "(…, Tq, d)",
     [](ir::Graph& g) {
       attention(floats(g, {2, 3, 4}), floats(g, {2, 5, 4}), floats(g, {3, 5, 4}));
     }},
    {"attention(f32[4], f32[4], f32[4]): expected q of rank 2 or more whose last axis is not empty, got f32[4]",
     "(…, Tq, d)", [](ir::Graph& g) { attention(floats(g, {4}), floats(g, {4}), floats(g, {4})); }},
    {"attention(f32[3,4], f32[5,4], i32[5,4]): expected operands of one float type, got f32, f32 and i32", "cast",
     [](ir::Graph& g) {
       attention(floats(g, {3, 4}), floats(g, {5, 4}), ints(g, {5, 4}));
     }},
};

TEST(StructuralErrors, NameTheCallWhatWasExpectedAndWhatCame) {
  for (const Mistake& mistake : kMistakes) {
    ir::Graph graph;
    try {
      mistake.make(graph);
      ADD_FAILURE() << "no error, expected: " << mistake.message;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), mistake.message);
      if (*mistake.hint == '\0') {
        EXPECT_EQ(error.hint(), "") << mistake.message;
      } else {
        EXPECT_NE(error.hint().find(mistake.hint), std::string::npos) << mistake.message << ": " << error.hint();
      }
    }
    EXPECT_EQ(graph.num_ops(), 0) << mistake.message << ": the op was added all the same";
  }
}

}  // namespace
}  // namespace aicf::test
