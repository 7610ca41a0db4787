// Chains of f32 ops: a block of elements goes through all of them in registers, one indirect jump an op, and memory is
// touched where a chain loads and stores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/reduce_tree.h"
#include "ir/op.h"

namespace aicf::backend::cpu {

// What a link does to the block, the accumulator. x: elements of memory; one: an element of memory, the same for all.
enum class LinkForm : uint8_t {
  load,       // x
  load_one,   // one
  store,      // to memory
  stream,     // to memory, past the cache: `at` is aligned to a line
  fetch,      // asks for the lines of `at`, where an element has `each` bytes
  alone,      // op(acc)
  left,       // op(acc, x)
  left_one,   // op(acc, one)
  right,      // op(x, acc)
  right_one,  // op(one, acc)
  twice,      // op(acc, acc)
};

// Of `select`, acc and x or one stand for the values that it chooses from. The mask, bytes that are 0 or 1, is `at` of
// a second link, which has no function.
struct Link {
  using Fn = void (*)();  // of a Highway target's own type
  Fn fn;
  float* at;    // element 0, or that of row 0 for a form that takes one
  size_t each;  // how much further the one of the next row is
};

// load, load_one, store, stream and fetch.
Link::Fn find_move_link(LinkForm form);
// Null where the op has no link of that form: it is not f32 to f32, or of other arity.
Link::Fn find_op_link(const ir::OpDef& def, LinkForm form);
// The kRowLanes results at `at` take the accumulator, element i to lane i mod kRowLanes.
Link::Fn find_reduce_link(ReduceKind kind);

struct Chains {
  size_t block;  // elements that go through a chain together; divides kRowLanes
  // Elements [begin, end). REQUIRES: whole blocks, begin a multiple of kRowLanes where it reduces, and room for one
  // more link.
  void (*run)(Link* links, size_t count, size_t begin, size_t end, size_t row);
};
const Chains& chains();

}  // namespace aicf::backend::cpu
