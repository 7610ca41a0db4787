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
  std::string name;  // "eager, random order (seed 3)"
  // To the default program, bit for bit: every output, param and state after every step. Of the rows "against cpu", and
  // of a pass that may reorder sums or roundings: within the bound that `detail` names.
  bool equal = false;
  std::string detail;  // of a difference: step, tensor, first differing element, and the first op that differs
};

// Compiles `options` in every variant (each in a store of its own, from the model's initial values), runs the same
// steps and compares: again, replay, eager in plan order and in random topological orders, no alias, no reuse, neither,
// each exact pass off; on the CPU one and two threads. Within bounds (loss and gradients of the first step, the loss of
// the later ones; without a loss, the outputs of the first): each pass off that reorders, and elsewhere than on the
// CPU, with a loss, the CPU. `feeds(step)` gives the inputs, which should differ from step to step; where the program
// has an `optimizer.lr`, it is changed before each step. `options.share` must be empty.
std::vector<VerifyRow> verify(Model& model, const CompileOptions& options,
                              const std::function<std::vector<Feed>(int step)>& feeds,
                              const VerifyOptions& verify_options = {});

}  // namespace aicf
