// verify(): proves on real steps that every way to run a program gives the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "aicf/program.h"

namespace aicf {

struct VerifyOptions {
  int steps = 8;
  int orders = 20;    // random topological orders of the launches
  uint64_t seed = 0;  // of the first order; the others count up from it
};

struct VerifyRow {
  std::string name;    // "eager, random order (seed 3)"
  bool equal = false;  // to the default program, bit for bit: every output, param and state after every step
  std::string detail;  // of a difference: step, tensor, first differing element, and the first op that differs
};

// Compiles `options` in every variant (each in a store of its own, from the model's initial values), runs the same
// steps and compares: eager in plan order and in random topological orders, replay, no alias, no reuse, neither, each
// exact pass off, one and two threads. `feeds(step)` gives the inputs, which should differ from step to step; where the
// program has an `optimizer.lr`, it is changed before each step. `options.share` must be empty.
std::vector<VerifyRow> verify(Model& model, const CompileOptions& options,
                              const std::function<std::vector<Feed>(int step)>& feeds,
                              const VerifyOptions& verify_options = {});

}  // namespace aicf
