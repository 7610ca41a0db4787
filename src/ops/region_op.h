// What the records of ops with a body that is run as their meaning share.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ir/op.h"

namespace aicf::ops {

// The types of the body's results. Throws Error unless the body's inputs, in order, are the operands, and it has
// neither params nor states.
std::vector<TensorType> infer_body(const ir::InferCtx& ctx);

// A body of inputs of these types and what `f` makes of them, for samples.
std::shared_ptr<const ir::Graph> body_of(const std::vector<TensorType>& inputs,
                                         const std::function<std::vector<Value>(std::vector<Value>)>& f);

// A sample of an op with such a body.
ir::Sample region_sample(const char* name, std::vector<TensorType> inputs,
                         const std::function<std::vector<Value>(std::vector<Value>)>& f);

}  // namespace aicf::ops
