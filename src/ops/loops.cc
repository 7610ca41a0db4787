// From a region's ops to loops. Every value is asked for at a place, from the results back to the operands; a view
// hands the question on to its operand, at another place. Where a place does not fall on whole axes, an axis is split
// and all is asked again.
#include "ops/loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "ops/defs.h"
#include "ops/gather.h"
#include "ops/reduce.h"
#include "ops/structural.h"

namespace aicf::ops {
namespace {

using Node = Loops::Node;
using Place = Loops::Place;

// Values are asked for one inside the other.
constexpr int kMaxOps = 2000;

// The region has no loops.
struct Refused {
  std::string why;
};
// It may have when axis `axis` is two: the inner one of this extent.
struct Split {
  size_t axis = 0;
  int64_t inner = 1;
};

// How much further an element lies in another tensor for a step along each axis of `shape`.
struct Steps {
  std::vector<int64_t> strides;
  int64_t offset = 0;
};

std::vector<int64_t> dense(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = stride;
    stride *= shape[i];
  }
  return strides;
}

Steps broadcast_steps(const Shape& from, const Shape& to) {
  const std::vector<int64_t> strides = dense(from);
  const int added = to.rank() - from.rank();
  Steps steps{std::vector<int64_t>(static_cast<size_t>(to.rank()), 0)};
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] != 1) steps.strides[static_cast<size_t>(added + i)] = strides[static_cast<size_t>(i)];
  }
  return steps;
}

Steps transpose_steps(const Shape& from, const std::vector<int64_t>& perm) {
  const std::vector<int64_t> strides = dense(from);
  Steps steps;
  for (int64_t axis : perm) steps.strides.push_back(strides[static_cast<size_t>(axis)]);
  return steps;
}

Steps slice_steps(const Shape& from, const ir::Attrs& attrs) {
  const std::vector<int64_t> strides = dense(from), start = attrs.get_ints("start"), step = attrs.get_ints("step");
  Steps steps;
  for (size_t i = 0; i < strides.size(); ++i) {
    steps.strides.push_back(strides[i] * (step.empty() ? 1 : step[i]));
    steps.offset += strides[i] * start[i];
  }
  return steps;
}

Steps axis_steps(const Shape& shape, int axis) {
  Steps steps{std::vector<int64_t>(static_cast<size_t>(shape.rank()), 0)};
  steps.strides[static_cast<size_t>(axis)] = 1;
  return steps;
}

// The axis of `shape` that a stride moves along; -1: none alone.
int axis_of(const Shape& shape, const std::vector<int64_t>& strides, int64_t stride) {
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t d = strides[static_cast<size_t>(i)];
    if (shape[i] > 1 && d <= stride) return stride % d == 0 && stride / d < shape[i] ? i : -1;
  }
  return -1;
}

// The reduction's geometry.
struct Geometry {
  int64_t outer = 1, n = 1, inner = 1;
  bool operator==(const Geometry&) const = default;
};

class Builder {
 public:
  explicit Builder(const ir::Graph& region) : region_(region) {
    if (region.num_ops() > kMaxOps) throw Refused{fmt::format("more than {} ops", kMaxOps)};
    int operands = 0;
    for (ir::ValueId v = 0; v < region.num_values(); ++v) {
      operand_of_.push_back(region.is_external(v) ? operands++ : -1);
      if (region.type(v).shape.elements() == 0) throw Refused{"an empty tensor"};
    }
    choose_space();
  }

  Loops run() {
    for (int tries = 0; tries < 64; ++tries) {
      try {
        attempt();
        classify();
        merge_axes();
        return std::move(loops_);
      } catch (const Split& split) {
        apply(split);
      }
    }
    throw Refused{"too many axes"};
  }

 private:
  // --- the space --------------------------------------------------------------------------------------------------

  Geometry geometry(const ir::Op& op) const {
    const ReduceDims d = reduce_dims(region_.type(op.inputs[0]).shape, op.attrs);
    return {d.outer, d.n, d.inner};
  }

  void choose_space() {
    std::vector<Geometry> found;
    for (const ir::Op& op : region_.ops()) {
      if (op.def == &matmul_def && product_ == nullptr) {
        product_ = &op;
        continue;
      }
      if (!is_fusible(*op.def)) throw Refused{fmt::format("{} is not fused", op.def->name)};
      if (!op.def->is(ir::kReduction)) continue;
      if (const Geometry g = geometry(op); std::find(found.begin(), found.end(), g) == found.end()) found.push_back(g);
    }
    if (product_ != nullptr && !found.empty()) throw Refused{"a reduction beside a matmul"};
    if (found.empty()) {
      int64_t elements = 0;
      for (const ir::Output& o : region_.outputs()) elements = std::max(elements, elements_of(o.value));
      groups_ = {{elements}, {}, {}};
      return;
    }
    space_ = found[0];
    if (found.size() == 2) {
      const bool first = found[0].inner == 1 && found[1] == Geometry{1, found[0].outer, found[0].n};
      const bool second = found[1].inner == 1 && found[0] == Geometry{1, found[1].outer, found[1].n};
      if (!first && !second) throw Refused{"reductions of different geometry"};
      space_ = found[first ? 0 : 1];
      columns_ = found[first ? 1 : 0];
    } else if (found.size() > 2) {
      throw Refused{"reductions of different geometry"};
    }
    groups_ = {{space_.outer}, {space_.n}, {space_.inner}};
  }

  int64_t elements_of(ir::ValueId v) const { return region_.type(v).shape.elements(); }

  void apply(const Split& split) {
    size_t axis = split.axis;
    for (std::vector<int64_t>& group : groups_) {
      if (axis < group.size()) {
        group[axis] /= split.inner;
        group.insert(group.begin() + static_cast<std::ptrdiff_t>(axis) + 1, split.inner);
        return;
      }
      axis -= group.size();
    }
  }

  void attempt() {
    loops_ = {};
    node_of_.clear();
    for (const std::vector<int64_t>& group : groups_) loops_.dims.insert(loops_.dims.end(), group.begin(), group.end());
    if (loops_.dims.size() > 60) throw Refused{"too many axes"};
    loops_.first_reduced = static_cast<int>(groups_[0].size());
    loops_.end_reduced = loops_.first_reduced + static_cast<int>(groups_[1].size());
    for (const ir::Output& o : region_.outputs()) {
      const Place place = normal(place_of_result(o.value));
      loops_.results.push_back({at(o.value, place), place});
    }
  }

  // Row-major over the axes in the mask; 0 along the others.
  Place dense_over(uint64_t axes) const {
    Place place{std::vector<int64_t>(loops_.dims.size(), 0)};
    int64_t stride = 1;
    for (size_t k = loops_.dims.size(); k-- > 0;) {
      if (((axes >> k) & 1) == 0) continue;
      place.strides[k] = stride;
      stride *= loops_.dims[k];
    }
    return place;
  }

  uint64_t all() const { return Loops::mask(0, static_cast<int>(loops_.dims.size())); }
  uint64_t kept() const { return all() & ~loops_.reduced_mask(); }

  // The reduction that a value is, looked for through reshapes.
  const ir::Op* reduction(ir::ValueId v) const {
    while (region_.value(v).producer != ir::kNoOp) {
      const ir::Op& op = region_.op(region_.value(v).producer);
      if (op.def->is(ir::kReduction)) return &op;
      if (op.def != &reshape_def) return nullptr;
      v = op.inputs[0];
    }
    return nullptr;
  }

  Place place_of_result(ir::ValueId v) const {
    if (const ir::Op* op = reduction(v); op != nullptr && columns_ && geometry(*op) == *columns_) {
      return dense_over(loops_.reduced_mask());
    }
    const int64_t n = elements_of(v);
    if (n == loops_.elements()) return dense_over(all());
    if (loops_.first_reduced != loops_.end_reduced && n == loops_.outer() * loops_.inner()) return dense_over(kept());
    throw Refused{fmt::format("result {} is of another size", ir::value_name(region_, v))};
  }

  // --- places -----------------------------------------------------------------------------------------------------

  // Of element `place` of a tensor of this shape: where a step along its axes leads in another.
  Place composed(const Place& place, const Shape& shape, const Steps& steps) const {
    const std::vector<int64_t> strides = dense(shape);
    Place to{std::vector<int64_t>(place.strides.size(), 0), steps.offset};
    std::vector<int64_t> reach(strides.size(), 0);  // the largest coordinate along each axis
    int64_t rest = place.offset;
    for (int i = 0; i < shape.rank(); ++i) {
      const auto axis = static_cast<size_t>(i);
      reach[axis] = shape[i] > 1 ? rest / strides[axis] : 0;
      rest -= reach[axis] * strides[axis];
      to.offset += reach[axis] * steps.strides[axis];
    }
    for (size_t k = 0; k < place.strides.size(); ++k) {
      const int64_t stride = place.strides[k], extent = loops_.dims[k];
      if (stride == 0 || extent == 1) continue;
      const int i = axis_of(shape, strides, stride);
      if (i < 0) throw Refused{"a view that is no stride"};
      const int64_t per = stride / strides[static_cast<size_t>(i)];
      if (per * extent > shape[i]) {
        const int64_t inner = shape[i] / per;
        if (shape[i] % per == 0 && inner > 1 && extent % inner == 0 && inner < extent) throw Split{k, inner};
        if (reach[static_cast<size_t>(i)] + per * (extent - 1) >= shape[i]) throw Refused{"a view that is no stride"};
      }
      reach[static_cast<size_t>(i)] += per * (extent - 1);
      to.strides[k] = per * steps.strides[static_cast<size_t>(i)];
    }
    for (int i = 0; i < shape.rank(); ++i) {
      if (reach[static_cast<size_t>(i)] >= shape[i]) throw Refused{"a view that carries from axis to axis"};
    }
    return to;
  }

  // --- nodes ------------------------------------------------------------------------------------------------------

  int add(Node node) {
    loops_.nodes.push_back(std::move(node));
    return static_cast<int>(loops_.nodes.size()) - 1;
  }

  Place normal(Place place) const {
    for (size_t k = 0; k < place.strides.size(); ++k) {
      if (loops_.dims[k] == 1) place.strides[k] = 0;
    }
    return place;
  }

  int at(ir::ValueId v, const Place& wanted) {
    const Place place = normal(wanted);
    const auto key = std::make_pair(v, std::make_pair(place.strides, place.offset));
    if (const auto it = node_of_.find(key); it != node_of_.end()) return it->second;
    const int node = make(v, place);
    node_of_[key] = node;
    return node;
  }

  int make(ir::ValueId v, const Place& place) {
    const ir::ValueInfo& info = region_.value(v);
    if (info.role == ir::Role::constant) return constant(info);
    if (info.role != ir::Role::tmp) {
      Node load = {.kind = Node::Kind::load, .dtype = info.type.dtype, .place = place};
      load.operand = operand_of_[static_cast<size_t>(v)];
      return add(std::move(load));
    }
    const ir::Op& op = region_.op(info.producer);
    const Shape& shape = info.type.shape;
    const ir::OpDef* def = op.def;
    if (def == &reshape_def) return at(op.inputs[0], place);
    if (def == &broadcast_def)
      return at(op.inputs[0], composed(place, shape, broadcast_steps(region_.type(op.inputs[0]).shape, shape)));
    if (def == &transpose_def) {
      const Steps steps = transpose_steps(region_.type(op.inputs[0]).shape, op.attrs.get_ints("perm"));
      return at(op.inputs[0], composed(place, shape, steps));
    }
    if (def == &slice_def)
      return at(op.inputs[0], composed(place, shape, slice_steps(region_.type(op.inputs[0]).shape, op.attrs)));
    if (def == &iota_def) {
      const Steps steps = axis_steps(shape, static_cast<int>(op.attrs.get_int("axis")));
      return add({.kind = Node::Kind::index, .dtype = info.type.dtype, .place = composed(place, shape, steps)});
    }
    if (def == &rng_bits_def) {
      Node draw = {.kind = Node::Kind::bits, .dtype = info.type.dtype, .place = place, .def = def, .attrs = op.attrs};
      const Place same{std::vector<int64_t>(place.strides.size(), 0)};
      draw.inputs = {at(op.inputs[0], same), at(op.inputs[1], same)};
      return add(std::move(draw));
    }
    if (def == &gather_def) return gathered(op, shape, place);
    if (def == &matmul_def) return product(op, info.type, place);
    if (def->is(ir::kReduction)) return reduction(op, place);
    Node node = {.dtype = info.type.dtype, .def = def, .attrs = op.attrs};
    for (ir::ValueId x : op.inputs) {
      const Shape& from = region_.type(x).shape;
      node.inputs.push_back(at(x, from == shape ? place : composed(place, shape, broadcast_steps(from, shape))));
    }
    return add(std::move(node));
  }

  int constant(const ir::ValueInfo& info) {
    const Tensor& data = *info.data;
    const size_t size = size_of(info.type.dtype);
    const char* first = static_cast<const char*>(data.data());
    for (int64_t i = 1; i < data.elements(); ++i) {
      if (!std::equal(first, first + size, first + static_cast<size_t>(i) * size)) throw Refused{"a constant tensor"};
    }
    Tensor one(TensorType{info.type.dtype, {}});
    std::copy_n(first, size, static_cast<char*>(one.data()));
    return add({.kind = Node::Kind::constant,
                .dtype = info.type.dtype,
                .data = std::make_shared<const Tensor>(std::move(one))});
  }

  int gathered(const ir::Op& op, const Shape& shape, const Place& place) {
    const ir::ValueId x = op.inputs[0], index = op.inputs[1];
    if (operand_of_[static_cast<size_t>(x)] < 0) throw Refused{"a gather from what is not in memory"};
    const Shape& from = region_.type(x).shape;
    const Shape& picks = region_.type(index).shape;
    const int axis = static_cast<int>(op.attrs.get_int("axis"));
    const int batch = static_cast<int>(op.attrs.get_int("batch_dims"));
    const std::vector<int64_t> x_strides = dense(from), index_strides = dense(picks);
    // The result's axes: those of x before `axis`, the index's own, those of x after it.
    Steps to_x, to_index;
    for (int i = 0; i < axis; ++i) {
      to_x.strides.push_back(x_strides[static_cast<size_t>(i)]);
      to_index.strides.push_back(i < batch ? index_strides[static_cast<size_t>(i)] : 0);
    }
    for (int i = batch; i < picks.rank(); ++i) {
      to_x.strides.push_back(0);
      to_index.strides.push_back(index_strides[static_cast<size_t>(i)]);
    }
    for (int i = axis + 1; i < from.rank(); ++i) {
      to_x.strides.push_back(x_strides[static_cast<size_t>(i)]);
      to_index.strides.push_back(0);
    }
    Node load = {.kind = Node::Kind::load, .dtype = region_.type(x).dtype, .place = composed(place, shape, to_x)};
    load.operand = operand_of_[static_cast<size_t>(x)];
    load.pick = x_strides[static_cast<size_t>(axis)];
    load.extent = from[axis];
    load.inputs = {at(index, composed(place, shape, to_index))};
    return add(std::move(load));
  }

  int product(const ir::Op& op, const TensorType& type, const Place& place) {
    const Place own = normal(dense_over(all()));
    if (place != own || type.shape.elements() != loops_.elements()) throw Refused{"a product read at another place"};
    Node node = {.kind = Node::Kind::product, .dtype = type.dtype, .place = place, .def = op.def, .attrs = op.attrs};
    for (size_t i = 0; i < 2; ++i) {
      node.factors[i] = operand_of_[static_cast<size_t>(op.inputs[i])];
      if (node.factors[i] < 0) throw Refused{"a matmul of what is not in memory"};
    }
    return add(std::move(node));
  }

  int reduction(const ir::Op& op, const Place& place) {
    const Geometry g = geometry(op);
    const bool column = columns_ && g == *columns_;
    const Place own = normal(dense_over(column ? loops_.reduced_mask() : kept()));
    if (place != own) throw Refused{"a reduction read at another place"};
    Node node = {.kind = column ? Node::Kind::column : Node::Kind::reduce,
                 .dtype = region_.type(op.inputs[0]).dtype,
                 .def = op.def,
                 .attrs = op.attrs};
    node.inputs = {at(op.inputs[0], dense_over(all()))};
    return add(std::move(node));
  }

  // --- the finished list ------------------------------------------------------------------------------------------

  // Where the nodes vary, the order of reductions, and so the kind.
  void classify() {
    const bool reduces = loops_.first_reduced != loops_.end_reduced;
    bool again = false;
    for (Node& node : loops_.nodes) {
      for (size_t k = 0; k < node.place.strides.size(); ++k) {
        if (node.place.strides[k] != 0) node.axes |= uint64_t{1} << k;
      }
      for (int input : node.inputs) {
        const Node& from = loops_.nodes[static_cast<size_t>(input)];
        if (from.kind == Node::Kind::column) throw Refused{"a sum over rows read in them"};
        node.axes |= from.axes;
        node.stage = std::max(node.stage, from.stage);
      }
      const bool varies = (node.axes & loops_.reduced_mask()) != 0;
      if (node.kind == Node::Kind::reduce) {
        if (!varies && loops_.n() > 1) throw Refused{"a reduction of equal elements"};
        node.axes &= ~loops_.reduced_mask();
        ++node.stage;
      } else if (node.kind == Node::Kind::column) {
        node.axes = loops_.reduced_mask();
      }
      again = again || (varies && node.stage > (node.kind == Node::Kind::reduce ? 1 : 0)) ||
              node.kind == Node::Kind::column;
    }
    for (const Loops::Result& result : loops_.results) {
      const bool repeated = loops_.nodes[static_cast<size_t>(result.node)].stage > 0 && !is_kept(result.place);
      again = again || repeated;
    }
    if (reduces && again && loops_.inner() != 1) throw Refused{"rows that are not adjacent in memory"};
    loops_.kind = product_ != nullptr ? Loops::Kind::epilogue
                  : !reduces          ? Loops::Kind::pointwise
                  : again             ? Loops::Kind::row
                                      : Loops::Kind::reduce;
    for (const Loops::Result& result : loops_.results) {
      uint64_t has = 0;
      for (size_t k = 0; k < loops_.dims.size(); ++k) {
        if (result.place.strides[k] != 0) has |= uint64_t{1} << k;
      }
      const Node& node = loops_.nodes[static_cast<size_t>(result.node)];
      if ((node.axes & ~has) != 0) throw Refused{"a result with fewer elements than its values"};
    }
  }

  bool is_kept(const Place& place) const {
    for (int k = loops_.first_reduced; k < loops_.end_reduced; ++k) {
      if (place.strides[static_cast<size_t>(k)] != 0) return false;
    }
    return true;
  }

  bool joins(const Place& place, size_t k) const {
    return place.strides.empty() || place.strides[k] == place.strides[k + 1] * loops_.dims[k + 1];
  }

  void drop(size_t k) {
    const auto at = static_cast<std::ptrdiff_t>(k);
    loops_.dims.erase(loops_.dims.begin() + at);
    const auto from = [&](Place& place) {
      if (!place.strides.empty()) place.strides.erase(place.strides.begin() + at);
    };
    for (Node& node : loops_.nodes) from(node.place);
    for (Loops::Result& result : loops_.results) from(result.place);
    for (Node& node : loops_.nodes) {
      const uint64_t low = node.axes & ((uint64_t{1} << k) - 1);
      node.axes = low | ((node.axes >> (k + 1)) << k);
    }
    if (static_cast<int>(k) < loops_.first_reduced) --loops_.first_reduced;
    if (static_cast<int>(k) < loops_.end_reduced) --loops_.end_reduced;
  }

  // Axes of extent 1 go, and neighbours that every place walks through as one.
  void merge_axes() {
    for (size_t k = loops_.dims.size(); k-- > 0;) {
      if (loops_.dims[k] == 1 && !is_last_of_reduced(k)) drop(k);
    }
    for (size_t k = loops_.dims.size(); k-- > 1;) {
      const auto boundary = static_cast<int>(k);
      if (boundary == loops_.first_reduced || boundary == loops_.end_reduced) continue;
      bool all = true;
      for (const Node& node : loops_.nodes) all = all && joins(node.place, k - 1);
      for (const Loops::Result& result : loops_.results) all = all && joins(result.place, k - 1);
      if (!all) continue;
      // Kept as the inner axis: its strides are those of the merged one, and a node varies along it if along either.
      loops_.dims[k] *= loops_.dims[k - 1];
      for (Node& node : loops_.nodes) {
        if (((node.axes >> (k - 1)) & 1) != 0) node.axes |= uint64_t{1} << k;
      }
      drop(k - 1);
    }
  }

  // A reduction over one element keeps its axis.
  bool is_last_of_reduced(size_t k) const {
    return static_cast<int>(k) == loops_.first_reduced && loops_.end_reduced == loops_.first_reduced + 1;
  }

  const ir::Graph& region_;
  std::vector<int> operand_of_;  // by value
  const ir::Op* product_ = nullptr;
  Geometry space_;
  std::optional<Geometry> columns_;
  std::vector<std::vector<int64_t>> groups_;  // extents of the axes: outer, reduced, inner
  std::map<std::pair<ir::ValueId, std::pair<std::vector<int64_t>, int64_t>>, int> node_of_;
  Loops loops_;
};

}  // namespace

int64_t Loops::product(int begin, int end) const {
  int64_t p = 1;
  for (int k = begin; k < end; ++k) p *= dims[static_cast<size_t>(k)];
  return p;
}

bool is_fusible(const ir::OpDef& def) {
  const ir::OpDef* const others[] = {&reshape_def, &broadcast_def, &transpose_def, &slice_def,
                                     &iota_def,    &gather_def,    &rng_bits_def};
  const bool reduces = def.is(ir::kReduction) && &def != &argmax_def;
  return def.is(ir::kPointwise) || reduces || std::find(std::begin(others), std::end(others), &def) != std::end(others);
}

std::optional<Loops> loops_of(const ir::Graph& region, std::string* why) {
  try {
    return Builder(region).run();
  } catch (const Refused& refused) {
    if (why != nullptr) *why = refused.why;
    return std::nullopt;
  }
}

std::vector<ir::AliasRule> alias_rules_of(const Loops& loops, const ir::Graph& region) {
  std::vector<TensorType> operands;
  for (ir::ValueId v = 0; v < region.num_values(); ++v) {
    if (region.is_external(v)) operands.push_back(region.type(v));
  }
  std::vector<ir::AliasRule> rules;
  for (size_t out = 0; out < loops.results.size(); ++out) {
    const TensorType& type = region.type(region.outputs()[out].value);
    for (size_t in = 0; in < operands.size(); ++in) {
      if (operands[in] != type) continue;
      const bool elsewhere = std::any_of(loops.nodes.begin(), loops.nodes.end(), [&](const Node& node) {
        const auto operand = static_cast<int>(in);
        if (node.kind == Node::Kind::product) return node.factors[0] == operand || node.factors[1] == operand;
        return node.kind == Node::Kind::load && node.operand == operand &&
               (node.pick != 0 || node.place != loops.results[out].place);
      });
      if (!elsewhere) rules.push_back({static_cast<int>(out), static_cast<int>(in)});
    }
  }
  return rules;
}

}  // namespace aicf::ops
