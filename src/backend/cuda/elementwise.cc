// One thread computes one pack of neighbouring elements of the results, 16 bytes of the widest type.
#include "backend/cuda/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/index_space.h"
#include "backend/cuda/loops_text.h"

namespace aicf::backend::cuda {

using Node = ops::Loops::Node;

namespace {

constexpr int64_t kPackBytes = 16;

std::vector<int> result_nodes(const ops::Loops& loops) {
  std::vector<int> nodes;
  for (const ops::Loops::Result& r : loops.results) nodes.push_back(r.node);
  return nodes;
}

// The text of one kernel, part by part.
class Writer {
 public:
  Writer(const ops::Loops& loops, int first_result)
      : loops_(loops),
        first_result_(first_result),
        index_(largest_index(loops)),
        needed_(needed_nodes(loops, result_nodes(loops))) {
    size_t widest = 1;
    for (size_t i = 0; i < loops.nodes.size(); ++i) {
      const Node& node = loops.nodes[i];
      if (needed_[i] && node.kind == Node::Kind::load && node.axes != 0) widest = std::max(widest, size_of(node.dtype));
    }
    for (const ops::Loops::Result& r : loops.results) widest = std::max(widest, size_of(dtype(r.node)));
    width_ = kPackBytes / static_cast<int64_t>(widest);
    while (width_ > loops.elements()) width_ /= 2;
    rows_ = loops.dims.size() == 1 || loops.dims.back() % width_ == 0;
  }

  Generated kernel(const std::string& what) {
    const int64_t elements = loops_.elements();
    const Grid grid = grid_for((elements + width_ - 1) / width_);
    Generated g;
    g.what = what;
    g.blocks = grid.blocks;
    g.threads = grid.threads;
    g.params = params();
    start(grid.threads);
    NodeText pack(loops_, index_, "p", names("c"));
    std::vector<std::string> within = names(rows_ ? "c" : "d");
    if (rows_) within.back() = "e";
    NodeText element(loops_, index_, "t", within);
    once(pack, element);
    for (size_t r = 0; r < loops_.results.size(); ++r)
      body_ += fmt::format("Pack<{}, {}> b{};\n", type(loops_.results[r].node), width_, r);
    loop(element);
    for (size_t r = 0; r < loops_.results.size(); ++r)
      body_ += fmt::format("store_pack(y{0} + i, b{0}{1});\n", r, tail());
    g.body = std::move(body_);
    return g;
  }

 private:
  DType dtype(int node) const { return loops_.nodes[static_cast<size_t>(node)].dtype; }
  std::string type(int node) const { return element_type(loops_, dtype(node)); }
  // The last pack may have fewer elements.
  bool partial() const { return loops_.elements() % width_ != 0; }
  const char* tail() const { return partial() ? ", count" : ""; }

  std::vector<std::string> names(const char* prefix) const {
    std::vector<std::string> list;
    for (size_t k = 0; k < loops_.dims.size(); ++k) list.push_back(fmt::format("{}{}", prefix, k));
    return list;
  }

  std::vector<Generated::Param> params() const {
    std::vector<Generated::Param> list = operand_params(loops_, needed_);
    for (size_t r = 0; r < loops_.results.size(); ++r)
      list.push_back({fmt::format("{}* y{}", type(loops_.results[r].node), r), first_result_ + static_cast<int>(r)});
    return list;
  }

  void start(int threads) {
    const std::string n = index_.number(loops_.elements()), width = index_.number(width_);
    body_ += constants_text(loops_);
    body_ +=
        fmt::format("const {} i = {} * {};\nif (i >= {}) return;\n", index_.type(), index_.thread(threads), width, n);
    if (partial()) body_ += fmt::format("const int count = {0} - i < {1} ? (int)({0} - i) : {1};\n", n, width);
    if (rows_) body_ += index_.coordinates(loops_.dims, "i", "c");
  }

  // It is one value for a whole pack.
  bool is_uniform(const Node& node) const {
    return rows_ ? ((node.axes >> (loops_.dims.size() - 1)) & 1) == 0 : node.axes == 0;
  }

  bool is_dense(const Node& node) const {
    int64_t stride = 1;
    for (size_t k = loops_.dims.size(); k-- > 0;) {
      if (node.place.strides[k] != stride) return false;
      stride *= loops_.dims[k];
    }
    return node.inputs.empty();
  }

  // What is read or computed once for the whole pack.
  void once(NodeText& pack, NodeText& element) {
    for (size_t i = 0; i < loops_.nodes.size(); ++i) {
      const Node& node = loops_.nodes[i];
      const auto id = static_cast<int>(i);
      if (!needed_[i]) continue;
      if (is_uniform(node)) {
        element.set(id, pack.element(id));
        body_ += pack.take();
      } else if (node.kind == Node::Kind::load) {
        std::string at;
        if (is_dense(node) && node.place.offset % width_ == 0) {
          // It needs no coordinates.
          at = node.place.offset == 0 ? "i" : "i + " + index_.number(node.place.offset);
          body_ += fmt::format("const Pack<{0}, {1}> a{2} = load_pack<{1}>(x{3} + ({4}){5});\n", type(id), width_, id,
                               node.operand, at, tail());
        } else if (rows_ && is_pack(loops_, id, width_) && !partial()) {
          const std::string read = pack.pack(id, width_);
          body_ += pack.take() + fmt::format("const Pack<{}, {}> a{} = {};\n", type(id), width_, id, read);
        } else {
          continue;
        }
        element.set(id, fmt::format("a{}.at[j]", id));
      }
    }
  }

  void loop(NodeText& element) {
    body_ += fmt::format("#pragma unroll\nfor (int j = 0; j < {}; ++j) {{\n", width_);
    // Beyond the end the last element is read again.
    const std::string j = partial() ? "(j < count ? j : count - 1)" : "j";
    if (rows_) {
      body_ += fmt::format("const {} e = c{} + {};\n", index_.type(), loops_.dims.size() - 1, j);
    } else {
      body_ += fmt::format("const {} e = i + {};\n", index_.type(), j);
      body_ += index_.coordinates(loops_.dims, "e", "d");
    }
    std::vector<std::string> values;
    for (const ops::Loops::Result& r : loops_.results) values.push_back(element.element(r.node));
    body_ += element.take();
    for (size_t r = 0; r < values.size(); ++r) body_ += fmt::format("b{}.at[j] = {};\n", r, values[r]);
    body_ += "}\n";
  }

  const ops::Loops& loops_;
  const int first_result_;
  const IndexText index_;
  const std::vector<bool> needed_;
  int64_t width_ = 1;  // elements of a pack
  bool rows_ = false;  // a pack lies within one row (the last axis)
  std::string body_;
};

// Loops whose operands have these strides.
ops::Loops loops_over(const Shape& shape, std::vector<std::vector<int64_t>> strides) {
  IndexSpace space = merged(shape, std::move(strides));
  ops::Loops loops;
  loops.dims = space.dims;
  loops.first_reduced = loops.end_reduced = static_cast<int>(loops.dims.size());
  for (size_t k = 0; k < space.strides.size(); ++k) {
    Node load = {.kind = Node::Kind::load, .place = {space.strides[k]}, .operand = static_cast<int>(k)};
    for (size_t a = 0; a < loops.dims.size(); ++a) {
      if (space.strides[k][a] != 0) load.axes |= uint64_t{1} << a;
    }
    loops.nodes.push_back(std::move(load));
  }
  return loops;
}

void add_result(ops::Loops& loops) {
  loops.results = {{static_cast<int>(loops.nodes.size()) - 1, {dense_strides(Shape(loops.dims))}}};
}

}  // namespace

std::vector<Generated> elementwise(const std::string& what, const ops::Loops& loops, int first_result) {
  return {Writer(loops, first_result).kernel(what)};
}

ops::Loops loops_of_op(const KernelQuery& query) {
  std::vector<std::vector<int64_t>> strides;
  for (const TensorType& in : query.in) strides.push_back(broadcast_strides(in.shape, query.out[0].shape));
  ops::Loops loops = loops_over(query.out[0].shape, std::move(strides));
  Node op = {.dtype = query.out[0].dtype, .def = &query.def, .attrs = query.attrs};
  for (size_t k = 0; k < query.in.size(); ++k) {
    loops.nodes[k].dtype = query.in[k].dtype;
    op.inputs.push_back(static_cast<int>(k));
    op.axes |= loops.nodes[k].axes;
  }
  loops.nodes.push_back(std::move(op));
  add_result(loops);
  return loops;
}

ops::Loops loops_of_copy(const TensorType& to, const std::vector<int64_t>& strides, int64_t offset) {
  ops::Loops loops = loops_over(to.shape, {strides});
  loops.nodes[0].dtype = to.dtype;
  loops.nodes[0].place.offset = offset;
  add_result(loops);
  return loops;
}

std::vector<Generated> strided_copy(const KernelQuery& query, const std::vector<int64_t>& strides, int64_t offset) {
  if (query.out[0].shape.elements() == 0) return {};
  return elementwise(ir::call_text(query.def, query.in), loops_of_copy(query.out[0], strides, offset), 1);
}

}  // namespace aicf::backend::cuda
