// Samples at another dtype: every float operand, its values and the body retyped.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ops/kernel_run.h"

namespace aicf::test {

inline uint64_t text_hash(const std::string& text) {  // FNV-1a
  uint64_t h = 14695981039346656037u;
  for (unsigned char c : text) h = (h ^ c) * 1099511628211u;
  return h;
}

inline Tensor converted(const Tensor& from, DType dtype) {
  Tensor to(TensorType{dtype, from.shape()});
  for (int64_t i = 0; i < from.elements(); ++i) set_element(dtype, to.data(), i, from.at(i));
  return to;
}

inline bool same_value(double a, double b) { return a == b || (a != a && b != b); }

// True when every element has the same value in the dtype.
inline bool survives(const Tensor& from, DType dtype) {
  const Tensor to = converted(from, dtype);
  for (int64_t i = 0; i < from.elements(); ++i) {
    if (!same_value(from.at(i), to.at(i))) return false;
  }
  return true;
}

// The body with every float type replaced.
inline std::shared_ptr<const ir::Graph> retyped(const std::shared_ptr<const ir::Graph>& body, DType dtype) {
  if (body == nullptr) return nullptr;
  auto graph = std::make_shared<ir::Graph>();
  std::vector<ir::ValueId> map(static_cast<size_t>(body->num_values()), ir::kNoValue);
  for (ir::ValueId v = 0; v < body->num_values(); ++v) {
    const ir::ValueInfo& info = body->value(v);
    TensorType type = info.type;
    if (is_float(type.dtype)) type.dtype = dtype;
    if (info.role == ir::Role::constant) {
      map[v] = graph->add_constant(is_float(info.type.dtype) ? converted(*info.data, dtype) : *info.data, info.name);
    } else if (info.role != ir::Role::tmp) {
      map[v] = graph->add_external(info.role, info.name, type, info.attrs);
    }
  }
  for (const ir::Op& op : body->ops()) {
    std::vector<ir::ValueId> inputs;
    for (ir::ValueId v : op.inputs) inputs.push_back(map[v]);
    ir::Attrs attrs = op.attrs;
    for (const auto& [name, value] : op.attrs) {
      const DType* old = std::get_if<DType>(&value);
      if (old != nullptr && is_float(*old)) attrs.set(name, dtype);
    }
    const ir::OpId id = graph->add_op(*op.def, inputs, attrs, retyped(op.region, dtype));
    for (size_t i = 0; i < op.outputs.size(); ++i) map[op.outputs[i]] = graph->op(id).outputs[i];
  }
  for (const ir::Output& output : body->outputs()) graph->add_output(output.name, map[output.value]);
  return graph;
}

// True when the sample runs as it stands: its dtypes are its point, or it has no floats.
inline bool is_typed(const ir::Sample& sample) {
  if (sample.as_typed) return true;
  if (sample.inputs.empty()) return false;
  for (const TensorType& t : sample.inputs) {
    if (is_float(t.dtype)) return false;
  }
  return true;
}

// The sample at this dtype; nullopt where its values have no meaning there (NaN or 0.5 in an integer). Results worked
// out by hand are dropped when the operands they were worked out for do not survive.
inline std::optional<ir::Sample> at_dtype(ir::Sample sample, DType dtype) {
  for (const auto& [operand, tensor] : sample.values) {
    if (!is_float(sample.inputs[operand].dtype) || survives(tensor, dtype)) continue;
    if (!is_float(dtype)) return std::nullopt;
    sample.expected.clear();
  }
  for (auto& [operand, tensor] : sample.values) {
    if (is_float(sample.inputs[operand].dtype)) tensor = converted(tensor, dtype);
  }
  for (TensorType& t : sample.inputs) {
    if (is_float(t.dtype)) t.dtype = dtype;
  }
  // An op without operands takes its type from the attribute.
  if (sample.inputs.empty() && sample.attrs.has("dtype")) sample.attrs.set("dtype", dtype);
  sample.region = retyped(sample.region, dtype);
  return sample;
}

// The operands of a sample: given, or drawn from a generator seeded by op, sample and operand.
inline std::vector<Tensor> operands_of(const ir::OpDef& def, const ir::Sample& sample) {
  std::vector<Tensor> operands;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const int same = i < sample.same_as.size() ? sample.same_as[i] : -1;
    if (same >= 0) {
      operands.push_back(operands[same]);
      continue;
    }
    const TensorType& type = sample.inputs[i];
    std::mt19937_64 random(text_hash(std::string(def.name) + "/" + sample.name + "/" + std::to_string(i)));
    bool index = false;
    for (const ir::IndexOperand& x : def.index_operands) index = index || x.operand == static_cast<int>(i);
    Tensor tensor(type);
    for (int64_t k = 0; k < tensor.elements(); ++k) {
      const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
      const bool whole = !is_float(type.dtype);
      const bool drawn_from_range = !whole || (!index && type.dtype != boolean && !is_typed(sample));
      double v = drawn_from_range ? sample.low + (sample.high - sample.low) * unit
                                  : unit * static_cast<double>(sample.index_extent);
      if (type.dtype == boolean) v = unit < 0.5 ? 0 : 1;
      if (whole) v = std::floor(v);
      set_element(type.dtype, tensor.data(), k, v);
    }
    operands.push_back(std::move(tensor));
  }
  for (const auto& [operand, tensor] : sample.values) operands[operand] = tensor;
  for (size_t i = 0; i < sample.same_as.size(); ++i) {
    if (sample.same_as[i] >= 0) operands[i] = operands[sample.same_as[i]];
  }
  return operands;
}

// A graph of the one op: operands are the inputs x0, x1, …, results the outputs y0, y1, ….
struct OpGraph {
  ir::Graph graph;
  std::vector<std::string> operand_keys;  // a repeated operand names the first
};

inline OpGraph graph_of(const ir::OpDef& def, const ir::Sample& sample) {
  OpGraph built;
  std::vector<ir::ValueId> inputs;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const int same = i < sample.same_as.size() ? sample.same_as[i] : -1;
    built.operand_keys.push_back(same >= 0 ? built.operand_keys[same] : "x" + std::to_string(i));
    inputs.push_back(same >= 0 ? inputs[same]
                               : built.graph.add_external(ir::Role::input, built.operand_keys[i], sample.inputs[i]));
  }
  const ir::OpId op = built.graph.add_op(def, inputs, sample.attrs, sample.region);
  const std::vector<ir::ValueId> outputs = built.graph.op(op).outputs;
  for (size_t o = 0; o < outputs.size(); ++o) built.graph.add_output("y" + std::to_string(o), outputs[o]);
  return built;
}

}  // namespace aicf::test
