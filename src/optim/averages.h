// Averages of the parameters over the steps: states `ema/NAME`, updated with them and read by evaluations.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "aicf/value.h"
#include "ir/graph.h"
#include "optim/optimizer.h"

namespace aicf::optim {

// The states: the average of a parameter and, after "optimizer.", how many steps its group's averages have seen. A
// count of its own, for parameters may have been trained before.
std::string average_name(const std::string& param);
std::string averages_count(const ir::Graph& graph, Value param);

// average := decay·average + (1 - decay)·(the parameter's new value); the first time, that value itself. In f32 or
// better. Throws Error unless 0 <= decay < 1. REQUIRES: the parameters have their updates.
void add_averages(ir::Graph& graph, double decay, const std::vector<Trained>& trained);

// The graph of a program that trains nothing, with each parameter that has an average read as that (before the first
// step of add_averages: as the parameter), in derived states too. `find` gives the type of a state that exists. Throws
// Error when no parameter has one.
ir::Graph use_averages(const ir::Graph& graph,
                       const std::function<std::optional<TensorType>(const std::string& state)>& find);

}  // namespace aicf::optim
