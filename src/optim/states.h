// What the optimizers share: hyper-parameters as states, groups, and the update of a tensor.
#pragma once

#include <string>
#include <vector>

#include "aicf/optim.h"
#include "aicf/value.h"
#include "ir/graph.h"
#include "ir/init.h"
#include "optim/optimizer.h"

namespace aicf::optim {

// The state NAME.
Value state(ir::Graph& graph, const std::string& name, const TensorType& type, const ir::InitSpec& init);
// The state `optimizer.NAME`: a scalar, a vector of given values, or zeros.
Value scalar_state(ir::Graph& graph, const std::string& name, DType dtype, double value);
Value values_state(ir::Graph& graph, const std::string& name, DType dtype, const std::vector<double>& values);
Value zeros_state(ir::Graph& graph, const std::string& name, const TensorType& type);

// target := value, labelled TARGET.next, cast to the target's dtype where they differ.
void update(ir::Graph& graph, Value target, Value value);

// "" for a parameter of the default group, "NAME." for one of another.
std::string group_prefix(const ir::Graph& graph, Value param);

// x itself, or x cast.
Value in_dtype(Value x, DType dtype);

// f64 when any parameter is f64, else f32: the dtype of the hyper-parameters, the moments and the arithmetic.
DType scalar_dtype(const std::vector<Trained>& trained);

// The parameters of one group, and its scalars in this step.
struct GroupStep {
  Value lr;  // base × factor
  Value weight_decay;
  Value step;       // i32: steps done before this one
  Value next_step;  // step + 1
  std::vector<Trained> members;
};

struct GroupDefaults {
  const char* optimizer;
  double lr;
  double weight_decay;
  const Schedule& schedule;
  const std::vector<Group>& groups;
};

// Declares each group's lr, weight_decay, step and lr_effective, and updates the last two. Groups come in the order of
// their first parameter. Throws Error on options for a group that no parameter of the graph has.
std::vector<GroupStep> begin_step(ir::Graph& graph, DType scalar, const GroupDefaults& defaults,
                                  const std::vector<Trained>& trained);

// Throw Error "OPTIMIZER: expected FIELD …, got VALUE" on a value out of its domain.
void check_not_negative(const char* optimizer, const char* field, double value);
void check_fraction(const char* optimizer, const char* field, double value);  // [0, 1)
// The options every optimizer has.
void check_common(const GroupDefaults& defaults);

}  // namespace aicf::optim
