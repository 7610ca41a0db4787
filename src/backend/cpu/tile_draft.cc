// From loops to the instructions of a tile program: which values are computed at which level and in which pass over a
// row, and in what form those of 16 bits are held.
#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "backend/cpu/tile_draft.h"
#include "ops/defs.h"

namespace aicf::backend::cpu {
namespace {

using ops::Loops;
using Node = Loops::Node;
using Kind = Instr::Kind;

// How a value of 16 bits is held: as it is in memory, as the f32 it stands for, or as the f32 that it is rounded from.
// Other values are `raw`.
enum class Form : uint8_t { raw, wide, unrounded };

// An operand that is one element for a whole run, or for each row of it.
struct One {
  bool single = false, of_row = false;
};

// Of a pattern: it leaves room in the second-level cache, and most of it in the first where it is a mask of 256 × 256.
constexpr int64_t kPatternBytes = 64 << 10;

// Elements. One pass in order is what prefetchers of processors follow: a tile ahead they were only disturbed (Zen 4:
// AdamW of 64 MiB a tensor took 1.8 times a loop's time). Rows that are held whole are read once in several passes.
constexpr int64_t kAhead = 256;

bool is_half(DType dtype) { return dtype == bf16 || dtype == f16; }
DType held_as(DType dtype, Form form) { return form == Form::raw ? dtype : f32; }

class Compiler {
 public:
  Compiler(const Loops& loops, const ir::Graph& region, const Frame& frame, const Sources& sources, const Shape& shape)
      : loops_(loops), region_(region), frame_(frame), sources_(sources), shape_(shape), draft_{.shape = shape} {
    const auto extent = [&](size_t i) { return loops_.dims[static_cast<size_t>(frame_.axes[i])]; };
    for (size_t i = 0; i < frame_.axes.size(); ++i) {
      const bool row = static_cast<int>(i) < frame_.row_axes;
      (row ? program_.rows : program_.length) *= extent(i);
      (row ? row_mask_ : element_mask_) |= uint64_t{1} << frame_.axes[i];
    }
    program_.group = shape.group;
    program_.tile = shape.tile;
    program_.band = shape.band;
    program_.farthest = shape.whole ? shape.tile : std::min(shape.tile, kAhead);
  }

  Draft run() {
    for (int node : frame_.reduces) add_partial(program_.reduces, node);
    for (int node : frame_.columns) add_partial(program_.columns, node);
    const int passes = count_passes();
    program_.steps.push_back({.level = Level::row});
    for (int pass = 1; pass <= passes; ++pass) {
      program_.steps.push_back({.level = Level::element});
      program_.steps.push_back({.level = Level::row});
      if (!shape_.whole) forget_elements();
      for (size_t i = 0; i < frame_.reduces.size(); ++i) {
        if (loops_.nodes[static_cast<size_t>(frame_.reduces[i])].stage == pass) reduce(static_cast<int>(i));
      }
      if (pass < passes) continue;
      for (size_t i = 0; i < frame_.columns.size(); ++i) column(static_cast<int>(i));
      for (int result : frame_.results) {
        if (level_of(loops_.results[static_cast<size_t>(result)]) == Level::element) store(result, Level::element);
      }
    }
    ++pass_;
    for (int result : frame_.results) {
      if (level_of(loops_.results[static_cast<size_t>(result)]) == Level::row) store(result, Level::row);
    }
    --pass_;
    return std::move(draft_);
  }

 private:
  const Node& node(int n) const { return loops_.nodes[static_cast<size_t>(n)]; }

  // --- levels and passes --------------------------------------------------------------------------------------------

  Level level_of(uint64_t axes, int stage) const {
    if ((axes & element_mask_) != 0) return Level::element;
    const bool of_row = (axes & row_mask_) != 0 || (stage > 0 && !frame_.after_reductions);
    return of_row ? Level::row : Level::once;
  }
  Level level_of(int n) const { return level_of(node(n).axes, node(n).stage); }

  // One element a row, beside reductions along rows, or one for each element.
  Level level_of(const Loops::Result& result) const {
    if (loops_.first_reduced == loops_.end_reduced || frame_.after_reductions) return Level::element;
    for (size_t k = 0; k < loops_.dims.size(); ++k) {
      if (((element_mask_ >> k) & 1) != 0 && result.place.strides[k] != 0) return Level::element;
    }
    return Level::row;
  }

  // The last one computes what is stored element by element, so that none is before the last read of a row.
  int count_passes() const {
    int passes = 1;
    for (int n : frame_.reduces) passes = std::max(passes, node(n).stage);
    if (frame_.after_reductions) return passes;
    for (int n : frame_.columns) passes = std::max(passes, node(node(n).inputs[0]).stage + 1);
    for (int r : frame_.results) {
      const Loops::Result& result = loops_.results[static_cast<size_t>(r)];
      if (level_of(result) == Level::element) passes = std::max(passes, node(result.node).stage + 1);
    }
    return passes;
  }

  void forget_elements() {
    std::erase_if(values_, [](const auto& entry) { return std::get<2>(entry.first) == Level::element; });
  }

  Program::Step& list(Level level) {
    if (level == Level::once) return program_.once;
    const size_t steps = program_.steps.size();
    if (level == Level::element) return program_.steps[steps - 2];
    return program_.steps[steps - (pass_ > 0 ? 1 : 3)];
  }

  // --- values -------------------------------------------------------------------------------------------------------

  int new_value(Level level, size_t size, bool in_scratch = true) {
    draft_.values.push_back({level, size, in_scratch});
    return static_cast<int>(draft_.values.size()) - 1;
  }

  int add(Instr instr, Level level, size_t size, bool in_scratch = true) {
    instr.level = level;
    instr.size = static_cast<uint8_t>(size);
    instr.out = new_value(level, size, in_scratch);
    Program::Step& step = list(level);
    (instr.kind == Kind::view ? step.views : step.instrs).push_back(instr);
    return instr.out;
  }

  int tile(TileFn fn, std::initializer_list<int> in, Level level, DType out) {
    Instr instr = {.kind = Kind::tile, .arity = static_cast<int>(in.size()), .tile = fn};
    std::copy(in.begin(), in.end(), instr.in);
    return add(instr, level, size_of(out));
  }

  int remember(int n, Form form, Level level, int value) {
    values_[{n, form, level}] = value;
    return value;
  }

  // The node's value at its own level.
  int value(int n, Form form) {
    const Level level = level_of(n);
    if (const auto it = values_.find({n, form, level}); it != values_.end()) return it->second;
    return remember(n, form, level, make(n, form, level));
  }

  bool has(int n, Form form) const { return values_.contains({n, form, level_of(n)}); }

  int make(int n, Form form, Level level) {
    const DType dtype = node(n).dtype;
    if (!is_half(dtype)) return made(n, level);
    const Form own = form_made(n);
    if (form == own) return made(n, level);
    if (form == Form::raw) {
      const Form from = has(n, Form::wide) ? Form::wide : own;
      return tile(find_cast(f32, dtype), {value(n, from)}, level, dtype);
    }
    if (own == Form::raw || has(n, Form::raw)) return tile(find_cast(dtype, f32), {value(n, Form::raw)}, level, f32);
    return tile(find_round(dtype), {value(n, own)}, level, f32);
  }

  // The form in which made() gives a node of 16 bits.
  Form form_made(int n) const {
    const Node& x = node(n);
    if (x.kind == Node::Kind::reduce) return Form::unrounded;
    if (x.kind != Node::Kind::op || x.def == &ops::select_def) return Form::raw;
    if (x.def != &ops::cast_def) return Form::unrounded;
    return node(x.inputs[0]).dtype == f32 ? Form::unrounded : Form::raw;
  }

  int made(int n, Level level) {
    const Node& x = node(n);
    switch (x.kind) {
      case Node::Kind::load:
        return x.pick != 0 ? picked(n, level) : load(x.place, x.dtype, {.at = {x.operand, 0}}, level);
      case Node::Kind::constant:
        program_.constants.push_back(x.data);
        return add({.kind = Kind::constant, .data = x.data->data()}, level, size_of(x.dtype), false);
      case Node::Kind::index:
        return add({.kind = Kind::index, .walk = walk(x.place, level), .dtype = x.dtype}, level, size_of(x.dtype));
      case Node::Kind::product:
        return load(x.place, x.dtype, {.at = *sources_.product}, level);
      case Node::Kind::reduce:
        return load(over_frame(), reduced_in(x.dtype), {.at = sources_.reduced[static_cast<size_t>(n)]}, level);
      case Node::Kind::op:
        if (level == Level::element && is_pattern(n)) return pattern(n);
        return x.def == &ops::cast_def ? cast(n, level) : op(n, level);
      case Node::Kind::bits:
        return bits(n, level);
      case Node::Kind::column:
        break;
    }
    throw InternalError("a node that no tile program computes");
  }

  int bits(int n, Level level) {
    const Node& x = node(n);
    Instr instr = {.kind = Kind::bits,
                   .arity = 2,
                   .walk = walk(x.place, level),
                   .ordinal = static_cast<uint32_t>(x.attrs.get_int("ordinal"))};
    for (size_t k = 0; k < 2; ++k) instr.in[k] = value(x.inputs[k], Form::raw);
    return add(instr, level, size_of(x.dtype));
  }

  int cast(int n, Level level) {
    const Node& x = node(n);
    const DType from = node(x.inputs[0]).dtype;
    if (from == x.dtype || (is_half(x.dtype) && from == f32)) return value(x.inputs[0], Form::raw);
    if (is_half(from) && x.dtype == f32) return value(x.inputs[0], Form::wide);
    return tile(find_cast(from, x.dtype), {value(x.inputs[0], Form::raw)}, level, x.dtype);
  }

  int op(int n, Level level) {
    const Node& x = node(n);
    const bool select = x.def == &ops::select_def;
    const DType dtype = node(x.inputs.back()).dtype, compute = compute_dtype(*x.def, dtype);
    const Form form = is_half(dtype) && !select ? Form::wide : Form::raw;
    Instr instr = {.kind = Kind::tile, .arity = static_cast<int>(x.inputs.size())};
    if (compute == f32 && level == Level::element && is_chained(*x.def)) instr.f32_op = x.def;
    // A chain goes through elements of one of the two.
    if (select && level_of(x.inputs[1]) != level && level_of(x.inputs[2]) != level) instr.f32_op = nullptr;
    unsigned rows = 0;
    for (size_t k = 0; k < x.inputs.size(); ++k) {
      One one;
      const bool mask = instr.f32_op != nullptr && select && k == 0;
      instr.in[k] = operand(x.inputs[k], form, level, mask ? nullptr : &one, instr.f32_op != nullptr);
      if (one.single) instr.scalars |= 1u << k;
      if (one.of_row) rows |= 1u << k;
    }
    if (rows == 0) instr.tile = find_tile(*x.def, compute, instr.scalars);
    for (size_t k = 0; instr.f32_op == nullptr && instr.tile == nullptr && k < x.inputs.size(); ++k) {
      if ((instr.scalars >> k & 1) == 0) continue;
      instr.in[k] = operand(x.inputs[k], form, level, nullptr);
      instr.scalars &= ~(1u << k);
      instr.tile = find_tile(*x.def, compute, instr.scalars);
    }
    if (instr.f32_op == nullptr && instr.tile == nullptr) throw InternalError("no tile for an op of a region");
    return add(instr, level, size_of(is_half(x.dtype) && !select ? f32 : x.dtype));
  }

  // The node's value for an instruction at `level`: one element where it is the same for a whole run and `one` is
  // there to say so, else as many as the run has. `rows`: one element for each row will do too.
  int operand(int n, Form form, Level level, One* one, bool rows = false) {
    const Level own = level_of(n);
    const int x = value(n, form);
    if (own == level) return x;
    const bool of_row = shape_.group > 1 && own == Level::row;
    if (one != nullptr && (!of_row || (rows && shape_.rows_apart()))) {
      *one = {true, of_row};
      return x;
    }
    if (const auto it = values_.find({n, form, level}); it != values_.end()) return it->second;
    Instr instr = {.kind = Kind::repeat, .one = own == Level::once, .arity = 1};
    instr.in[0] = x;
    return remember(n, form, level, add(instr, level, size_of(held_as(node(n).dtype, form))));
  }

  // --- loads --------------------------------------------------------------------------------------------------------

  int walk(const Loops::Place& place, Level level) {
    std::vector<int64_t> dims, strides;
    for (size_t i = 0; i < frame_.axes.size(); ++i) {
      if (level == Level::once || (level == Level::row && static_cast<int>(i) >= frame_.row_axes)) continue;
      dims.push_back(loops_.dims[static_cast<size_t>(frame_.axes[i])]);
      strides.push_back(place.strides[static_cast<size_t>(frame_.axes[i])]);
    }
    program_.walks.emplace_back(dims, strides, place.offset);
    return static_cast<int>(program_.walks.size()) - 1;
  }

  // The space in order.
  Loops::Place over_frame() const {
    Loops::Place place{std::vector<int64_t>(loops_.dims.size(), 0)};
    int64_t stride = 1;
    for (size_t i = frame_.axes.size(); i-- > 0;) {
      const auto axis = static_cast<size_t>(frame_.axes[i]);
      place.strides[axis] = stride;
      stride *= loops_.dims[axis];
    }
    return place;
  }

  // `from`: where, at or data.
  int load(const Loops::Place& place, DType dtype, const Instr& from, Level level) {
    if (level == Level::element && is_same_for_rows(place)) return load_of_columns(place, dtype, from);
    const int w = walk(place, level);
    const Walk& walked = program_.walks[static_cast<size_t>(w)];
    if (!walked.is_dense()) {
      Instr load = {.kind = Kind::load, .at = from.at, .data = from.data, .walk = w};
      if (shape_.band > 1 && level == Level::element) load.across = across_of(loops_, frame_, place);
      const int out = add(load, level, size_of(dtype));
      draft_.values.back().banded = load.across != 0;
      return out;
    }
    if (level == Level::element) count_bytes(size_of(dtype));
    const Instr view = {.kind = Kind::view,
                        .at = from.at,
                        .data = from.data,
                        .first = walked.offset(),
                        .each = level == Level::once ? 0 : 1};
    return add(view, level, size_of(dtype), false);
  }

  void count_bytes(size_t size) { program_.bytes += program_.rows * program_.length * static_cast<int64_t>(size); }

  bool is_same_for_rows(const Loops::Place& place) const {
    if (program_.rows == 1) return false;
    for (int k = 0; k < frame_.row_axes; ++k) {
      if (place.strides[static_cast<size_t>(frame_.axes[static_cast<size_t>(k)])] != 0) return false;
    }
    return true;
  }

  // What all rows read: where it lies, or, for a tile of whole rows, loaded once.
  int load_of_columns(const Loops::Place& place, DType dtype, const Instr& from) {
    std::vector<int64_t> dims, strides;
    for (size_t i = static_cast<size_t>(frame_.row_axes); i < frame_.axes.size(); ++i) {
      dims.push_back(loops_.dims[static_cast<size_t>(frame_.axes[i])]);
      strides.push_back(place.strides[static_cast<size_t>(frame_.axes[i])]);
    }
    const Walk columns(dims, strides, place.offset);
    if (columns.is_dense() && shape_.group == 1) {
      const Instr view = {
          .kind = Kind::view, .columns = true, .at = from.at, .data = from.data, .first = columns.offset(), .each = 1};
      return add(view, Level::element, size_of(dtype), false);
    }
    Instr load = {.kind = Kind::load, .at = from.at, .data = from.data, .walk = walk(place, Level::element)};
    if (shape_.group == 1 && !shape_.whole) return add(load, Level::element, size_of(dtype));
    load.size = static_cast<uint8_t>(size_of(dtype));
    load.out = new_value(Level::element, load.size);
    draft_.values.back().kept = true;
    program_.shared.instrs.push_back(load);
    return load.out;
  }

  int picked(int n, Level level) {
    const Node& x = node(n);
    Instr instr = {.kind = Kind::pick,
                   .wide_index = node(x.inputs[0]).dtype == i64,
                   .arity = 1,
                   .at = {x.operand, 0},
                   .walk = walk(x.place, level),
                   .pick = x.pick,
                   .extent = x.extent};
    One one;
    instr.in[0] = operand(x.inputs[0], Form::raw, level, &one);
    instr.one = one.single;
    return add(instr, level, size_of(x.dtype));
  }

  // --- patterns -----------------------------------------------------------------------------------------------------

  // Integers and masks that are made of indices alone, such as a causal mask.
  bool is_of_indices(int n) const {
    const Node& x = node(n);
    if (is_float(x.dtype) || x.axes == 0) return x.kind == Node::Kind::constant && !is_float(x.dtype);
    if (x.kind == Node::Kind::index) return true;
    if (x.kind != Node::Kind::op) return false;
    return std::all_of(x.inputs.begin(), x.inputs.end(), [&](int in) { return is_of_indices(in); });
  }

  // Of the frame's axes, the outermost along which the node varies.
  size_t first_axis(int n) const {
    size_t i = 0;
    while ((node(n).axes >> frame_.axes[i] & 1) == 0) ++i;
    return i;
  }
  int64_t period(int n) const {
    int64_t elements = 1;
    for (size_t i = first_axis(n); i < frame_.axes.size(); ++i) {
      elements *= loops_.dims[static_cast<size_t>(frame_.axes[i])];
    }
    return elements;
  }

  // An op whose value is cheaper to read, from the caches, than to make for each tile anew.
  bool is_pattern(int n) const {
    return is_of_indices(n) && period(n) * static_cast<int64_t>(size_of(node(n).dtype)) <= kPatternBytes;
  }

  // The elements of one period of a node, which may have a longer one itself.
  std::vector<char> elements_of(int n, size_t from_axis, int64_t count) const {
    const Node& x = node(n);
    std::vector<char> out(static_cast<size_t>(count) * size_of(x.dtype));
    if (x.kind == Node::Kind::op) {
      std::vector<std::vector<char>> operands;
      const void* in[3] = {};
      for (int input : x.inputs) operands.push_back(elements_of(input, from_axis, count));
      for (size_t k = 0; k < operands.size(); ++k) in[k] = operands[k].data();
      const DType dtype = node(x.inputs.back()).dtype;
      const TileFn fn = x.def == &ops::cast_def ? find_cast(dtype, x.dtype) : find_tile(*x.def, dtype);
      if (fn == nullptr) throw InternalError("no tile for an op of a region");
      fn(in, out.data(), static_cast<size_t>(count));
      return out;
    }
    std::vector<int64_t> dims, strides;
    for (size_t i = from_axis; i < frame_.axes.size(); ++i) {
      const auto axis = static_cast<size_t>(frame_.axes[i]);
      dims.push_back(loops_.dims[axis]);
      strides.push_back(x.kind == Node::Kind::index ? x.place.strides[axis] : 0);
    }
    const auto write = [&](int64_t i, int64_t number) {
      char* const to = out.data() + static_cast<size_t>(i) * size_of(x.dtype);
      if (x.kind == Node::Kind::constant) {
        std::memcpy(to, x.data->data(), size_of(x.dtype));
      } else if (x.dtype == i64) {
        std::memcpy(to, &number, sizeof(number));
      } else if (x.dtype == i32) {
        const auto narrow = static_cast<int32_t>(number);
        std::memcpy(to, &narrow, sizeof(narrow));
      } else {
        *to = static_cast<char>(number);
      }
    };
    Walk(dims, strides, x.kind == Node::Kind::index ? x.place.offset : 0)
        .pieces(0, count, [&](int64_t position, int64_t value, int64_t step, int64_t run) {
          for (int64_t i = 0; i < run; ++i) write(position + i, value + i * step);
        });
    return out;
  }

  // One period of the node, from which each tile is read.
  int pattern(int n) {
    const size_t from_axis = first_axis(n);
    const int64_t count = period(n);
    const std::vector<char> elements = elements_of(n, from_axis, count);
    auto data = std::make_shared<Tensor>(TensorType{node(n).dtype, {count}});
    std::memcpy(data->data(), elements.data(), elements.size());
    Loops::Place place{std::vector<int64_t>(loops_.dims.size(), 0)};
    int64_t stride = 1;
    for (size_t i = frame_.axes.size(); i-- > from_axis;) {
      const auto axis = static_cast<size_t>(frame_.axes[i]);
      place.strides[axis] = stride;
      stride *= loops_.dims[axis];
    }
    const Instr from = {.at = {-1, 0}, .data = data->data()};
    program_.constants.push_back(std::move(data));
    return load(place, node(n).dtype, from, Level::element);
  }

  // --- reductions and results ---------------------------------------------------------------------------------------

  void add_partial(std::vector<Partial>& partials, int n) {
    const DType dtype = reduced_in(node(n).dtype);
    const ReduceKind kind = reduce_kind(node(n).def->name);
    Partial partial = {.node = n, .kind = kind, .tree = &tree_fns(dtype), .size = size_of(dtype)};
    if (dtype == f32) partial.f32_tree = &reduce_tree<float>(kind);
    partials.push_back(partial);
  }

  int reduced_value(int n) {
    const int x = node(n).inputs[0];
    return operand(x, is_half(node(x).dtype) ? Form::wide : Form::raw, Level::element, nullptr);
  }

  void emit(Kind kind, Level level, int in, int out, int partial) {
    Instr instr = {.kind = kind, .level = level, .out = out, .arity = in >= 0 ? 1 : 0, .partial = partial};
    if (in >= 0) instr.in[0] = in;
    list(level).instrs.push_back(instr);
  }

  void reduce(int partial) {
    const int n = frame_.reduces[static_cast<size_t>(partial)];
    const int in = reduced_value(n);
    const DType dtype = node(n).dtype;
    if (!shape_.whole) emit(Kind::accumulate, Level::element, in, -1, partial);
    if (frame_.blocks_apart) return;
    const int out = new_value(Level::row, size_of(reduced_in(dtype)));
    if (shape_.whole) {
      emit(Kind::reduce, Level::element, in, out, partial);
    } else {
      ++pass_;
      emit(Kind::combine, Level::row, -1, out, partial);
      --pass_;
    }
    remember(n, is_half(dtype) ? Form::unrounded : Form::raw, Level::row, out);
  }

  void column(int partial) {
    emit(Kind::column, Level::element, reduced_value(frame_.columns[static_cast<size_t>(partial)]), -1, partial);
  }

  void store(int result, Level level) {
    const int n = loops_.results[static_cast<size_t>(result)].node;
    const DType dtype = node(n).dtype;
    int x = operand(n, Form::raw, level, nullptr);
    // What is still in an operand's memory when other results are written may be overwritten.
    if (!draft_.values[static_cast<size_t>(x)].in_scratch || is_load(x))
      x = tile(find_cast(dtype, dtype), {x}, level, dtype);
    if (level == Level::element) count_bytes(size_of(dtype));
    Store s = {.value = x, .result = sources_.operands + result, .size = size_of(dtype), .level = level};
    s.past_cache = region_.type(region_.outputs()[static_cast<size_t>(result)].value).bytes() >= kStreamBytes;
    s.operands = sources_.operands;
    s.alone = std::none_of(program_.stores.begin(), program_.stores.end(), [&](Store& other) {
      const bool same = other.value == x;
      if (same) other.alone = false;
      return same;
    });
    program_.stores.push_back(std::move(s));
  }

  bool is_load(int x) const {
    bool found = false;
    draft_.each_instr([&](const Instr& i) {
      if (i.out == x) found = in_memory(i.kind) || i.kind == Kind::constant;
    });
    return found;
  }

  const Loops& loops_;
  const ir::Graph& region_;
  const Frame& frame_;
  const Sources& sources_;
  const Shape shape_;
  uint64_t row_mask_ = 0, element_mask_ = 0;
  int pass_ = 0;  // 1: instructions of rows go after the elements of the pass, not before
  std::map<std::tuple<int, Form, Level>, int> values_;
  Draft draft_;
  Program& program_ = draft_.program;
};

}  // namespace

int64_t across_of(const Loops& loops, const Frame& frame, const Loops::Place& place) {
  if (frame.row_axes == 0 || static_cast<int>(frame.axes.size()) != frame.row_axes + 1) return 0;
  const auto row = static_cast<size_t>(frame.axes[static_cast<size_t>(frame.row_axes) - 1]);
  const auto along = static_cast<size_t>(frame.axes.back());
  const int64_t stride = place.strides[along];
  return place.strides[row] == 1 && stride > 1 && loops.dims[along] > 1 ? stride : 0;
}

Draft draft_of(const Loops& loops, const ir::Graph& region, const Frame& frame, const Sources& sources,
               const Shape& shape) {
  return Compiler(loops, region, frame, sources, shape).run();
}

}  // namespace aicf::backend::cpu
