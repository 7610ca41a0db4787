// What the layers share: the form of their errors.
#pragma once

#include <string>
#include <vector>

#include "aicf/nn.h"

namespace aicf::nn {

// Throws Error "linear fc1(f32[64,100]): expected EXPECTED".
[[noreturn]] void fail(const Layer::Impl& layer, const LayerContext& context, const std::vector<Value>& inputs,
                       const std::string& expected);

// The only input, of a float type and at least this rank. Throws Error through fail() otherwise.
Value float_input(const Layer::Impl& layer, const LayerContext& context, const std::vector<Value>& inputs,
                  int min_rank = 0);

// The only input, of any type.
Value only_input(const Layer::Impl& layer, const LayerContext& context, const std::vector<Value>& inputs);

// Throws Error unless the standard deviation of initial values is finite and 0 or more.
void check_deviation(const char* layer, double deviation);

// The name of a layer inside this one: "h0" in "gpt" is "gpt.h0", in "" it is "h0".
std::string inner_name(const LayerContext& context, const std::string& name);

}  // namespace aicf::nn
