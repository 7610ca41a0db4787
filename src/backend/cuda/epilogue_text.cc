#include "backend/cuda/epilogue_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/text.h"
#include "ops/defs.h"

namespace aicf::backend::cuda {

using Node = ops::Loops::Node;
using Place = ops::Loops::Place;

namespace {

// Registers for the operands of the pairs whose loads are in flight.
constexpr int kLoadRegisters = 32;

bool is_load(const Node& node) { return node.kind == Node::Kind::load && node.inputs.empty(); }

std::vector<int> result_nodes(const ops::Loops& loops) {
  std::vector<int> nodes;
  for (const ops::Loops::Result& r : loops.results) nodes.push_back(r.node);
  return nodes;
}

}  // namespace

ops::Loops plain_loops(DType result, int64_t elements) {
  ops::Loops loops;
  loops.kind = ops::Loops::Kind::epilogue;
  loops.dims = {elements};
  loops.nodes = {{.kind = Node::Kind::product, .dtype = result, .place = {{1}}, .def = &ops::matmul_def, .axes = 1}};
  loops.nodes[0].factors = {0, 1};
  loops.results = {{0, {{1}}}};
  return loops;
}

int product_node(const ops::Loops& loops) {
  const auto it = std::find_if(loops.nodes.begin(), loops.nodes.end(),
                               [](const Node& node) { return node.kind == Node::Kind::product; });
  return static_cast<int>(it - loops.nodes.begin());
}

EpilogueText::EpilogueText(const ops::Loops& loops, int64_t columns, int first_result)
    : loops_(loops),
      columns_(columns),
      first_result_(first_result),
      index_(largest_index(loops)),
      even_(columns % 2 == 0),
      needed_(needed_nodes(loops, result_nodes(loops))) {
  find_axes(columns);
  find_accesses();
  std::vector<std::string> of_pair, of_element;
  const std::string pair_coordinates = coordinates("outer", "inner", "at_element", "k", of_pair);
  std::string element_coordinates = by_rows_ ? fmt::format("const {} within = inner + j;\n", index_.type())
                                             : fmt::format("const {} this_element = at_element + j;\n", index_.type());
  element_coordinates += coordinates("outer", "within", "this_element", "e", of_element);
  NodeText scalars(loops, index_, "once", of_pair), pair(loops, index_, "p", of_pair),
      element(loops, index_, "t", of_element);
  write_params();
  write_once(scalars, element);
  write_loads(pair, element, pair_coordinates, element_coordinates);
  write_compute(element, element_coordinates);
}

std::string EpilogueText::helpers() const { return helpers_text(loops_); }

int EpilogueText::factor(int i) const {
  return loops_.nodes[static_cast<size_t>(product_node(loops_))].factors[static_cast<size_t>(i)];
}

std::string EpilogueText::type(int node) const { return c_type(loops_.nodes[static_cast<size_t>(node)].dtype); }

void EpilogueText::find_axes(int64_t columns) {
  int64_t extent = 1;
  size_t k = loops_.dims.size();
  while (k > 0 && extent < columns) extent *= loops_.dims[--k];
  by_rows_ = extent == columns;
  inner_axes_ = by_rows_ ? k : 0;
}

// Statements that define the coordinates along every axis, and their names.
std::string EpilogueText::coordinates(const char* outer, const char* inner, const char* element,
                                      const std::string& prefix, std::vector<std::string>& names) const {
  std::string text;
  const auto part = [&](size_t begin, size_t end, const char* of, const std::string& name) {
    const std::vector<int64_t> dims(loops_.dims.begin() + static_cast<std::ptrdiff_t>(begin),
                                    loops_.dims.begin() + static_cast<std::ptrdiff_t>(end));
    if (dims.size() > 1) text += index_.coordinates(dims, of, name);
    for (size_t k = 0; k < dims.size(); ++k) names.push_back(dims.size() > 1 ? fmt::format("{}{}", name, k) : of);
  };
  if (by_rows_) part(0, inner_axes_, outer, prefix + "o");
  part(inner_axes_, loops_.dims.size(), by_rows_ ? inner : element, prefix + "i");
  return text;
}

void EpilogueText::find_accesses() {
  const Place& dense = loops_.nodes[static_cast<size_t>(product_node(loops_))].place;
  const bool paired = even_ && (loops_.dims.empty() || loops_.dims.back() % 2 == 0);
  for (size_t i = 0; i < loops_.nodes.size(); ++i) {
    const Node& node = loops_.nodes[i];
    bool scalar = node.axes == 0 && needed_[i] && node.kind != Node::Kind::product;
    for (int input : node.inputs) {
      const Node& from = loops_.nodes[static_cast<size_t>(input)];
      scalar = scalar && (from.kind == Node::Kind::constant || once_nodes_[static_cast<size_t>(input)]);
    }
    once_nodes_.push_back(scalar && node.kind != Node::Kind::constant);
    Access access = Access::none;
    if (needed_[i] && is_load(node) && !scalar) {
      const auto even = [](int64_t s) { return s % 2 == 0; };
      const std::vector<int64_t>& s = node.place.strides;
      access = Access::apart;
      if (even_ && node.place == dense) {
        access = Access::pack;
      } else if (paired && s.back() == 0) {
        access = Access::repeated;
      } else if (paired && s.back() == 1 && even(node.place.offset) && std::all_of(s.begin(), s.end() - 1, even)) {
        access = Access::pack;
      }
    }
    access_.push_back(access);
  }
}

void EpilogueText::write_params() {
  params_ = operand_params(loops_, needed_);
  for (size_t r = 0; r < loops_.results.size(); ++r) {
    params_.push_back({fmt::format("{}* y{}", type(loops_.results[r].node), r), first_result_ + static_cast<int>(r)});
  }
}

// What is one number for all elements: the step count's powers of an optimizer among them.
void EpilogueText::write_once(NodeText& scalars, NodeText& element) {
  once_ = constants_text(loops_);
  for (size_t i = 0; i < loops_.nodes.size(); ++i) {
    if (once_nodes_[i]) element.set(static_cast<int>(i), scalars.element(static_cast<int>(i)));
  }
  once_ += scalars.take();
}

void EpilogueText::write_loads(const NodeText& pair, const NodeText& element, const std::string& pair_coordinates,
                               const std::string& element_coordinates) {
  std::string apart;
  for (size_t i = 0; i < loops_.nodes.size(); ++i) {
    const Node& node = loops_.nodes[i];
    const std::string at = fmt::format("l{}[p]", i), x = fmt::format("x{}", node.operand);
    if (access_[i] == Access::pack) {
      loads_text_ += fmt::format("{} = load_pack<2>({} + ({}));\n", at, x, pair.offset(node.place));
    } else if (access_[i] == Access::repeated) {
      loads_text_ += fmt::format("{0}.at[0] = {0}.at[1] = {1}[{2}];\n", at, x, pair.offset(node.place));
    } else if (access_[i] == Access::apart) {
      apart += fmt::format("{}.at[j] = {}[{}];\n", at, x, element.offset(node.place));
    }
  }
  if (!loads_text_.empty()) loads_text_ = pair_coordinates + loads_text_;
  if (apart.empty()) return;
  loads_text_ += fmt::format("#pragma unroll\nfor (int j = 0; j < 2; ++j) {{\nif (j >= count) continue;\n{}{}}}\n",
                             element_coordinates, apart);
}

void EpilogueText::write_compute(NodeText& element, const std::string& element_coordinates) {
  for (size_t r = 0; r < loops_.results.size() && even_; ++r) {
    compute_ += fmt::format("Pack<{}, 2> b{};\n", type(loops_.results[r].node), r);
  }
  compute_ += "#pragma unroll\nfor (int j = 0; j < 2; ++j) {\n";
  if (!even_) compute_ += "if (j >= count) continue;\n";
  compute_ += element_coordinates;
  const int product = product_node(loops_);
  compute_ += fmt::format("const {0} product = store<{0}>(v[q][j]);\n", type(product));
  element.set(product, "product");
  for (size_t i = 0; i < loops_.nodes.size(); ++i) {
    if (access_[i] == Access::none) continue;
    compute_ += fmt::format("const {} a{} = l{}[p].at[j];\n", type(static_cast<int>(i)), i, i);
    element.set(static_cast<int>(i), fmt::format("a{}", i));
  }
  std::vector<std::string> results;
  for (const ops::Loops::Result& r : loops_.results) results.push_back(element.element(r.node));
  compute_ += element.take();
  for (size_t r = 0; r < results.size(); ++r) {
    compute_ += even_ ? fmt::format("b{}.at[j] = {};\n", r, results[r])
                      : fmt::format("y{}[at_element + j] = {};\n", r, results[r]);
  }
  compute_ += "}\n";
  for (size_t r = 0; r < results.size() && even_; ++r)
    compute_ += fmt::format("store_pack(y{0} + at_element, b{0});\n", r);
}

int EpilogueText::group(int pairs) const {
  const auto loads = static_cast<int>(
      std::count_if(access_.begin(), access_.end(), [](Access access) { return access != Access::none; }));
  if (loads == 0) return pairs;
  int group = pairs;
  while (group > 1 && (group * loads * 2 > kLoadRegisters || pairs % group != 0)) --group;
  return group;
}

std::string EpilogueText::arrays(int group) const {
  std::string text;
  for (size_t i = 0; i < loops_.nodes.size(); ++i) {
    if (access_[i] == Access::none) continue;
    text += fmt::format("Pack<{}, 2> l{}[{}];\n", type(static_cast<int>(i)), i, group);
  }
  return text;
}

}  // namespace aicf::backend::cuda
