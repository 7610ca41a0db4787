#include "backend/cuda/loops_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "aicf/error.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {

using Node = ops::Loops::Node;

namespace {

bool only_moves(const ops::Loops& loops) {
  return std::all_of(loops.nodes.begin(), loops.nodes.end(),
                     [](const Node& n) { return n.kind == Node::Kind::load && n.inputs.empty(); });
}

std::string constant_text(const Node& node, const std::string& name) {
  const std::string type = c_type(node.dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, node.data->data(), size_of(node.dtype));
  switch (node.dtype) {
    case DType::f32:
      return fmt::format("float {0};\nasm(\"mov.f32 %0, 0f{1:08X};\" : \"=f\"({0}));\n", name, bits);
    case DType::bf16:
    case DType::f16:
      return fmt::format(
          "u16 {0}_bits;\nasm(\"mov.b16 %0, {2:#06x};\" : \"=h\"({0}_bits));\nconst {1} {0} = {{{0}_bits}};\n", name,
          type, bits);
    default:
      return fmt::format("const {0} {1} = ({0}){2:#x}ull;\n", type, name, bits);
  }
}

// As iota converts.
std::string index_element(DType dtype, const std::string& x) {
  switch (dtype) {
    case DType::f32:
      return "to_f32((i64)(" + x + "))";
    case DType::bf16:
      return "to_bf16(to_f32((i64)(" + x + ")))";
    case DType::f16:
      return "to_f16(to_f32((i64)(" + x + ")))";
    default:
      return fmt::format("({})({})", c_type(dtype), x);
  }
}

}  // namespace

std::string element_type(const ops::Loops& loops, DType dtype) {
  return only_moves(loops) ? bits_type(dtype) : c_type(dtype);
}

int64_t largest_index(const ops::Loops& loops) {
  int64_t largest = loops.elements();
  for (const Node& node : loops.nodes) {
    int64_t last = node.place.offset;
    for (size_t k = 0; k < node.place.strides.size(); ++k) last += node.place.strides[k] * (loops.dims[k] - 1);
    if (node.pick != 0) last += node.pick * (node.extent - 1);
    largest = std::max(largest, last);
  }
  return largest;
}

std::string constants_text(const ops::Loops& loops) {
  std::string text;
  for (size_t i = 0; i < loops.nodes.size(); ++i) {
    if (loops.nodes[i].kind == Node::Kind::constant) text += constant_text(loops.nodes[i], fmt::format("lit{}", i));
  }
  return text;
}

std::vector<bool> needed_nodes(const ops::Loops& loops, const std::vector<int>& roots) {
  std::vector<bool> needed(loops.nodes.size(), false);
  for (int root : roots) needed[static_cast<size_t>(root)] = true;
  for (size_t i = loops.nodes.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (int input : loops.nodes[i].inputs) needed[static_cast<size_t>(input)] = true;
  }
  return needed;
}

std::vector<Generated::Param> operand_params(const ops::Loops& loops, const std::vector<bool>& needed) {
  std::map<int, DType> operands;
  for (size_t i = 0; i < loops.nodes.size(); ++i) {
    const Node& node = loops.nodes[i];
    if (needed[i] && node.kind == Node::Kind::load) operands[node.operand] = node.dtype;
  }
  std::vector<Generated::Param> params;
  for (const auto& [operand, dtype] : operands)
    params.push_back({fmt::format("const {}* x{}", element_type(loops, dtype), operand), operand});
  return params;
}

bool is_pack(const ops::Loops& loops, int load, int64_t width) {
  const Node& node = loops.nodes[static_cast<size_t>(load)];
  const std::vector<int64_t>& strides = node.place.strides;
  if (strides.back() != 1 || node.place.offset % width != 0 || node.pick % width != 0) return false;
  if (!node.inputs.empty()) {
    const uint64_t axes = loops.nodes[static_cast<size_t>(node.inputs[0])].axes;
    if (((axes >> (strides.size() - 1)) & 1) != 0) return false;
  }
  return std::all_of(strides.begin(), strides.end() - 1, [&](int64_t s) { return s % width == 0; });
}

NodeText::NodeText(const ops::Loops& loops, const IndexText& index, std::string prefix,
                   std::vector<std::string> coordinates)
    : loops_(loops),
      index_(index),
      coordinates_(std::move(coordinates)),
      scalars_(std::move(prefix)),
      values_(loops.nodes.size(), -1) {}

std::string NodeText::offset(const ops::Loops::Place& place) const {
  std::string text;
  for (size_t k = 0; k < place.strides.size(); ++k) {
    if (place.strides[k] == 0) continue;
    text += (text.empty() ? "" : " + ") + coordinates_[k];
    if (place.strides[k] != 1) text += " * " + index_.number(place.strides[k]);
  }
  if (place.offset != 0 || text.empty()) text += (text.empty() ? "" : " + ") + index_.number(place.offset);
  return text;
}

NodeText::Where NodeText::where(int load) {
  const Node& node = loops_.nodes[static_cast<size_t>(load)];
  Where where{offset(node.place), {}};
  if (node.inputs.empty()) return where;
  const std::string index = scalars_.printer().assign("i64", element(node.inputs[0]));
  where.condition = fmt::format("{0} >= 0 && {0} < {1}", index, node.extent);
  where.offset += fmt::format(" + ({}){} * {}", index_.type(), index, index_.number(node.pick));
  return where;
}

void NodeText::set(int node, std::string element) {
  values_[static_cast<size_t>(node)] =
      scalars_.variable(loops_.nodes[static_cast<size_t>(node)].dtype, std::move(element));
}

std::string NodeText::element(int node) { return scalars_.element(value(node)); }

std::string NodeText::pack(int load, int64_t width) {
  const Node& node = loops_.nodes[static_cast<size_t>(load)];
  const Where at = where(load);
  const std::string read = fmt::format("load_pack<{}>(x{} + ({}))", width, node.operand, at.offset);
  if (at.condition.empty()) return read;
  return fmt::format("{} ? {} : Pack<{}, {}>{{}}", at.condition, read, element_type(loops_, node.dtype), width);
}

std::string NodeText::take() {
  const std::string& all = scalars_.statements();
  std::string text = all.substr(taken_);
  taken_ = all.size();
  return text;
}

int NodeText::value(int node) {
  int& known = values_[static_cast<size_t>(node)];
  if (known < 0) {
    const int value = computed(node);
    values_[static_cast<size_t>(node)] = value;
    return value;
  }
  return known;
}

std::string NodeText::load(int node) {
  const Node& n = loops_.nodes[static_cast<size_t>(node)];
  const Where at = where(node);
  const std::string type = element_type(loops_, n.dtype), read = fmt::format("x{}[{}]", n.operand, at.offset);
  if (at.condition.empty()) return scalars_.printer().assign(type, read);
  return scalars_.printer().assign(type, fmt::format("{} ? {} : {}()", at.condition, read, type));
}

int NodeText::computed(int node) {
  const Node& n = loops_.nodes[static_cast<size_t>(node)];
  switch (n.kind) {
    case Node::Kind::load:
      return scalars_.variable(n.dtype, load(node));
    case Node::Kind::constant:
      return scalars_.variable(n.dtype, fmt::format("lit{}", node));
    case Node::Kind::index:
      return scalars_.variable(n.dtype,
                               scalars_.printer().assign(c_type(n.dtype), index_element(n.dtype, offset(n.place))));
    case Node::Kind::op: {
      std::vector<int> inputs;
      for (int input : n.inputs) inputs.push_back(value(input));
      return scalars_.apply(*n.def, n.dtype, inputs);
    }
    default:
      throw InternalError("a node of a region whose value was not given");
  }
}

}  // namespace aicf::backend::cuda
