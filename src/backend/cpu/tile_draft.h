// A tile program being made: compile() takes it from step to step.
#pragma once

#include <array>
#include <vector>

#include "backend/cpu/tile_program.h"

namespace aicf::backend::cpu {

// What a program is compiled for.
struct Shape {
  int64_t group = 1;  // rows
  int64_t tile = 1;   // elements; of more than one row, and of a whole one, all
  // A row is in one tile: values are computed once. Else once in each pass that needs them.
  bool whole = false;
  int64_t band = 1;  // rows

  // Blocks of a chain do not reach from one row of a group into the next.
  bool rows_apart() const { return group > 1 && tile / group % static_cast<int64_t>(kRowLanes) == 0; }
};

struct Draft {
  struct Value {
    Level level = Level::element;
    size_t size = 0;  // bytes of an element
    bool in_scratch = true;
    bool kept = false;    // of elements, and the same for every tile
    bool banded = false;  // of elements of a band
  };
  Shape shape = {};
  std::vector<Value> values = {};
  Program program = {};

  const Value& value(int v) const { return values[static_cast<size_t>(v)]; }

  template <class F>
  void each_instr(F f) const {
    const auto each = [&](const Program::Step& step) {
      for (const Instr& i : step.views) f(i);
      for (const Instr& i : step.instrs) f(i);
    };
    each(program.once);
    each(program.shared);
    for (const Program::Step& step : program.steps) each(step);
  }
};

// Its value may be read where it lies in a buffer.
inline bool in_memory(Instr::Kind kind) {
  return kind == Instr::Kind::view || kind == Instr::Kind::load || kind == Instr::Kind::pick;
}

// Elements from one to the next along a row that lies across lines: neighbours in it are apart, but one row's and the
// next row's are adjacent. 0: it does not.
int64_t across_of(const ops::Loops& loops, const Frame& frame, const ops::Loops::Place& place);

Draft draft_of(const ops::Loops& loops, const ir::Graph& region, const Frame& frame, const Sources& sources,
               const Shape& shape);

// The op may be a link of a chain.
bool is_chained(const ir::OpDef& def);
// Chains of the f32 ops on elements.
void form_chains(Draft& draft);

// Gives values their places, and finds which results may be computed where they go.
void allocate(Draft& draft);

}  // namespace aicf::backend::cpu
