// Sequential: compile the built model, run the program.
#include "nn/sequential.h"

#include "aicf/error.h"

namespace aicf::nn {

void Sequential::compile(const CompileOptions& options) const { state_->program = aicf::compile(model(), options); }

Program& Sequential::program() const {
  model();
  if (!state_->program.valid()) throw Error("sequential: expected a compiled program", "call compile(options) first");
  return state_->program;
}

StepResult Sequential::run(const std::vector<Feed>& feeds) const { return program().step(feeds); }

}  // namespace aicf::nn
