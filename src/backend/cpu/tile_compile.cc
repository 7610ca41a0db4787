// From loops to a tile program: which values are computed at which level and in which pass over a row, in what form
// those of 16 bits are held, and where all of them lie in the scratch.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "backend/cpu/tile_program.h"
#include "ops/defs.h"

namespace aicf::backend::cpu {
namespace {

using ops::Loops;
using Node = Loops::Node;
using Kind = Instr::Kind;

// What a program is compiled for.
struct Shape {
  int64_t group = 1;  // rows
  int64_t tile = 1;   // elements; of more than one row, and of a whole one, all
  // A row is in one tile: values are computed once. Else once in each pass that needs them.
  bool whole = false;
};

// How a value of 16 bits is held: as it is in memory, as the f32 it stands for, or as the f32 that it is rounded from.
// Other values are `raw`.
enum class Form : uint8_t { raw, wide, unrounded };

bool is_half(DType dtype) { return dtype == bf16 || dtype == f16; }
DType held_as(DType dtype, Form form) { return form == Form::raw ? dtype : f32; }

constexpr size_t kAlignment = 64;
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class Compiler {
 public:
  Compiler(const Loops& loops, const ir::Graph& region, const Frame& frame, const Sources& sources, const Shape& shape)
      : loops_(loops), region_(region), frame_(frame), sources_(sources), shape_(shape) {
    const auto extent = [&](size_t i) { return loops_.dims[static_cast<size_t>(frame_.axes[i])]; };
    for (size_t i = 0; i < frame_.axes.size(); ++i) {
      const bool row = static_cast<int>(i) < frame_.row_axes;
      (row ? program_.rows : program_.length) *= extent(i);
      (row ? row_mask_ : element_mask_) |= uint64_t{1} << frame_.axes[i];
    }
    program_.group = shape.group;
    program_.tile = shape.tile;
  }

  Program run() {
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
    pair_up();
    find_reads_after_values();
    allocate();
    return std::move(program_);
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

  // --- values
  // ---------------------------------------------------------------------------------------------------------

  int new_value(Level level, size_t size, bool in_scratch = true) {
    levels_.push_back(level);
    sizes_.push_back(size);
    in_scratch_.push_back(in_scratch);
    return static_cast<int>(levels_.size()) - 1;
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
        return x.pick != 0 ? picked(n, level) : load(x.place, x.dtype, {x.operand, 0}, level);
      case Node::Kind::constant:
        program_.constants.push_back(x.data);
        return add({.kind = Kind::constant, .data = x.data->data()}, level, size_of(x.dtype), false);
      case Node::Kind::index:
        return add({.kind = Kind::index, .walk = walk(x.place, level), .dtype = x.dtype}, level, size_of(x.dtype));
      case Node::Kind::product:
        return load(x.place, x.dtype, *sources_.product, level);
      case Node::Kind::reduce:
        return load(over_frame(), reduced_in(x.dtype), sources_.reduced[static_cast<size_t>(n)], level);
      case Node::Kind::op:
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
    Instr instr = {.kind = Kind::tile, .arity = static_cast<int>(x.inputs.size())};
    unsigned scalars = 0;
    for (size_t k = 0; k < x.inputs.size(); ++k) {
      const bool wide = is_half(dtype) && !select;
      bool one = false;
      instr.in[k] = operand(x.inputs[k], wide ? Form::wide : Form::raw, level, &one);
      if (one) scalars |= 1u << k;
    }
    instr.tile = find_tile(*x.def, compute, scalars);
    for (size_t k = 0; instr.tile == nullptr && k < x.inputs.size(); ++k) {
      if ((scalars >> k & 1) == 0) continue;
      const bool wide = is_half(dtype) && !select;
      instr.in[k] = operand(x.inputs[k], wide ? Form::wide : Form::raw, level, nullptr);
      scalars &= ~(1u << k);
      instr.tile = find_tile(*x.def, compute, scalars);
    }
    if (instr.tile == nullptr) throw InternalError("no tile for an op of a region");
    if (compute == f32) instr.f32_op = x.def;
    instr.scalars = scalars;
    return add(instr, level, size_of(is_half(x.dtype) && !select ? f32 : x.dtype));
  }

  // The node's value for an instruction at `level`: one element where it is the same for a whole run and `one` is
  // there to say so, else as many as the run has.
  int operand(int n, Form form, Level level, bool* one) {
    const Level own = level_of(n);
    const int x = value(n, form);
    if (own == level) return x;
    const bool single = own == Level::once || shape_.group == 1;
    if (single && one != nullptr) {
      *one = true;
      return x;
    }
    if (const auto it = values_.find({n, form, level}); it != values_.end()) return it->second;
    Instr instr = {.kind = Kind::repeat, .one = own == Level::once, .arity = 1};
    instr.in[0] = x;
    return remember(n, form, level, add(instr, level, size_of(held_as(node(n).dtype, form))));
  }

  // --- loads
  // ----------------------------------------------------------------------------------------------------------

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

  int load(const Loops::Place& place, DType dtype, At at, Level level) {
    const int w = walk(place, level);
    const Walk& walked = program_.walks[static_cast<size_t>(w)];
    if (!walked.is_dense()) return add({.kind = Kind::load, .at = at, .walk = w}, level, size_of(dtype));
    const Instr view = {.kind = Kind::view, .at = at, .first = walked.offset(), .each = level == Level::once ? 0 : 1};
    return add(view, level, size_of(dtype), false);
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
    instr.in[0] = operand(x.inputs[0], Form::raw, level, &instr.one);
    return add(instr, level, size_of(x.dtype));
  }

  // --- reductions and results
  // -----------------------------------------------------------------------------------------

  void add_partial(std::vector<Partial>& partials, int n) {
    const DType dtype = reduced_in(node(n).dtype);
    partials.push_back({n, reduce_kind(node(n).def->name), &tree_fns(dtype), size_of(dtype), {}, 0});
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
    if (!in_scratch_[static_cast<size_t>(x)] || is_load(x)) x = tile(find_cast(dtype, dtype), {x}, level, dtype);
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

  template <class F>
  void each_instr(F f) const {
    const auto each = [&](const Program::Step& step) {
      for (const Instr& i : step.views) f(i);
      for (const Instr& i : step.instrs) f(i);
    };
    each(program_.once);
    for (const Program::Step& step : program_.steps) each(step);
  }

  bool is_load(int x) const {
    bool found = false;
    each_instr([&](const Instr& i) {
      if (i.out == x) found = in_memory(i.kind) || i.kind == Kind::constant;
    });
    return found;
  }

  // --- pairs
  // ----------------------------------------------------------------------------------------------------------

  // An op whose value only one other reads joins it, where a tile does both.
  void pair_up() {
    std::vector<int> uses(levels_.size(), 0);
    each_instr([&](const Instr& i) {
      for (int k = 0; k < i.arity; ++k) ++uses[static_cast<size_t>(i.in[k])];
    });
    for (const Store& s : program_.stores) ++uses[static_cast<size_t>(s.value)];
    for (Program::Step& step : program_.steps) {
      if (step.level != Level::element) continue;
      std::map<int, size_t> by_value;
      std::vector<bool> joined(step.instrs.size(), false);
      for (size_t t = 0; t < step.instrs.size(); ++t) {
        Instr& outer = step.instrs[t];
        for (int k = 0; outer.f32_op != nullptr && outer.arity == 2 && k < 2; ++k) {
          const auto inner = by_value.find(outer.in[k]);
          if (inner == by_value.end() || uses[static_cast<size_t>(outer.in[k])] != 1) continue;
          if (join(step.instrs[inner->second], outer, k)) joined[inner->second] = true;
        }
        by_value[outer.out] = t;
      }
      size_t kept = 0;
      for (size_t t = 0; t < step.instrs.size(); ++t) {
        if (!joined[t]) step.instrs[kept++] = step.instrs[t];
      }
      step.instrs.resize(kept);
    }
  }

  static bool join(const Instr& inner, Instr& outer, int k) {
    if (inner.f32_op == nullptr || inner.arity != 2) return false;
    const unsigned other = outer.scalars >> (1 - k) & 1;
    const unsigned scalars = inner.scalars | other << 2;
    const TileFn both = find_pair(*inner.f32_op, *outer.f32_op, k == 1, scalars);
    if (both == nullptr) return false;
    const int last = outer.in[1 - k];
    std::copy_n(inner.in, 2, outer.in);
    outer.in[2] = last;
    outer.arity = 3;
    outer.tile = both;
    outer.scalars = scalars;
    outer.f32_op = nullptr;
    return true;
  }

  // Its value may be read where it lies in a buffer.
  static bool in_memory(Kind kind) { return kind == Kind::view || kind == Kind::load || kind == Kind::pick; }

  void find_reads_after_values() {
    std::map<int, int> buffer_of;  // values that are in an operand's memory
    each_instr([&](const Instr& i) {
      if (in_memory(i.kind)) buffer_of[i.out] = i.at.buffer;
    });
    for (Store& s : program_.stores) {
      bool after = false;
      each_instr([&](const Instr& i) {
        const auto reads = [&](int buffer) {
          if (after && buffer >= 0) s.read_later.push_back(buffer);
        };
        if (in_memory(i.kind)) reads(i.at.buffer);
        for (int k = 0; k < i.arity; ++k) {
          if (const auto it = buffer_of.find(i.in[k]); it != buffer_of.end()) reads(it->second);
        }
        after = after || i.out == s.value;
      });
      std::sort(s.read_later.begin(), s.read_later.end());
      s.read_later.erase(std::unique(s.read_later.begin(), s.read_later.end()), s.read_later.end());
    }
  }

  // --- the scratch
  // ----------------------------------------------------------------------------------------------------

  void allocate() {
    const size_t values = levels_.size();
    size_t bytes = aligned(values * sizeof(void*) + program_.stores.size());
    program_.place.assign(values, SIZE_MAX);
    for (size_t v = 0; v < values; ++v) {
      if (levels_[v] == Level::element || !in_scratch_[v]) continue;
      program_.place[v] = bytes;
      bytes += aligned(sizes_[v] * (levels_[v] == Level::row ? static_cast<size_t>(shape_.group) : 1));
    }
    if (!shape_.whole) {
      for (Partial& r : program_.reduces) {
        r.lanes = bytes;
        bytes += aligned(kRowLanes * r.size);
      }
    }
    program_.slots_bytes = share_slots(bytes);
    for (Program::Step& step : program_.steps) {
      const size_t instrs = std::max<size_t>(step.instrs.size(), 1);
      for (Instr& view : step.views) {
        const size_t tile = view.size * static_cast<size_t>(shape_.tile);
        view.fetch = static_cast<int64_t>(aligned((tile + instrs - 1) / instrs));
      }
    }
    program_.scratch_bytes = bytes + program_.slots_bytes;
  }

  // Values of elements share slots where their lives do not overlap. Returns the bytes of the slots.
  size_t share_slots(size_t base) {
    std::vector<const Instr*> order;
    for (const Program::Step& step : program_.steps) {
      for (const Instr& i : step.instrs) order.push_back(&i);
    }
    std::vector<size_t> last_use(levels_.size(), 0);
    for (size_t t = 0; t < order.size(); ++t) {
      for (int k = 0; k < order[t]->arity; ++k) last_use[static_cast<size_t>(order[t]->in[k])] = t;
    }
    for (const Store& s : program_.stores) last_use[static_cast<size_t>(s.value)] = order.size();
    size_t widest = 1;
    for (size_t v = 0; v < levels_.size(); ++v) {
      if (levels_[v] == Level::element && in_scratch_[v]) widest = std::max(widest, sizes_[v]);
    }
    const size_t slot_bytes = aligned(widest * static_cast<size_t>(shape_.tile));
    std::vector<size_t> slot_of(levels_.size(), SIZE_MAX), free;
    size_t slots = 0;
    const auto in_slot = [&](int v) {
      return v >= 0 && levels_[static_cast<size_t>(v)] == Level::element && in_scratch_[static_cast<size_t>(v)];
    };
    for (size_t t = 0; t < order.size(); ++t) {
      const Instr& i = *order[t];
      std::vector<size_t> dying;
      for (int k = 0; k < i.arity; ++k) {
        const int x = i.in[k];
        if (!in_slot(x) || last_use[static_cast<size_t>(x)] != t) continue;
        const size_t slot = slot_of[static_cast<size_t>(x)];
        if (std::find(dying.begin(), dying.end(), slot) == dying.end()) dying.push_back(slot);
      }
      if (in_slot(i.out)) {
        // A tile's result may replace an operand of its size.
        const auto same = std::find_if(dying.begin(), dying.end(), [&](size_t slot) {
          for (int k = 0; k < i.arity; ++k) {
            const int x = i.in[k];
            if (in_slot(x) && slot_of[static_cast<size_t>(x)] == slot)
              return i.kind == Kind::tile && sizes_[static_cast<size_t>(x)] == i.size;
          }
          return false;
        });
        size_t slot = slots;
        if (same != dying.end()) {
          slot = *same;
          dying.erase(same);
        } else if (!free.empty()) {
          slot = free.back();
          free.pop_back();
        } else {
          ++slots;
        }
        slot_of[static_cast<size_t>(i.out)] = slot;
        program_.place[static_cast<size_t>(i.out)] = base + slot * slot_bytes;
        if (last_use[static_cast<size_t>(i.out)] <= t) free.push_back(slot);
      }
      free.insert(free.end(), dying.begin(), dying.end());
    }
    return slots * slot_bytes;
  }

  const Loops& loops_;
  const ir::Graph& region_;
  const Frame& frame_;
  const Sources& sources_;
  const Shape shape_;
  uint64_t row_mask_ = 0, element_mask_ = 0;
  int pass_ = 0;  // 1: instructions of rows go after the elements of the pass, not before
  std::map<std::tuple<int, Form, Level>, int> values_;
  std::vector<Level> levels_;  // by value
  std::vector<size_t> sizes_;
  std::vector<bool> in_scratch_;
  Program program_;
};

// Enough to hide what an instruction costs beside its elements.
constexpr int64_t kMostElements = 512, kFewestElements = 256;
// Of a row that is held as a whole.
constexpr int64_t kLongestRow = 4096;
constexpr int64_t kMostRows = 256;
// Of slots, beside the operands and results that pass through the first-level cache.
constexpr size_t kSlotsBytes = size_t{20} << 10;

}  // namespace

std::optional<Program> compile(const Loops& loops, const ir::Graph& region, const Frame& frame,
                               const Sources& sources) {
  int64_t rows = 1, length = 1;
  for (size_t i = 0; i < frame.axes.size(); ++i) {
    (static_cast<int>(i) < frame.row_axes ? rows : length) *= loops.dims[static_cast<size_t>(frame.axes[i])];
  }
  const bool reduces = !frame.reduces.empty();
  const auto at = [&](const Shape& shape) { return Compiler(loops, region, frame, sources, shape).run(); };
  const auto rows_of = [&](int64_t elements) {
    return std::clamp<int64_t>(elements / length, 1, std::min(rows, kMostRows));
  };
  if (reduces && !frame.blocks_apart && length <= kLongestRow) {
    for (int64_t elements = kMostElements;; elements /= 2) {
      const int64_t group = rows_of(elements);
      Program program = at({group, group * length, true});
      const bool small = program.slots_bytes <= kSlotsBytes || elements <= kFewestElements;
      if (program.scratch_bytes <= kScratchBytes && (small || group == 1)) return program;
      if (group == 1) break;
    }
  }
  // Sums of columns take several rows at a time; a row is rather one tile than a tile and a rest.
  const bool more = !frame.columns.empty() || (length > kMostElements && length <= 2 * kMostElements);
  int64_t most = !more ? kMostElements : frame.columns.empty() ? 2 * kMostElements : 4 * kMostElements;
  // Lanes are started with a block of a row: a tile lies within one.
  if (reduces) most = std::min(most, static_cast<int64_t>(kRowBlock));
  for (int64_t elements = most; elements >= static_cast<int64_t>(kRowLanes); elements /= 2) {
    const bool grouped = !reduces && length <= elements;
    const int64_t group = grouped ? rows_of(elements) : 1;
    Program program = at({group, grouped ? group * length : elements, false});
    const bool small = program.slots_bytes <= kSlotsBytes || elements <= kFewestElements;
    if (small && program.scratch_bytes <= kScratchBytes) return program;
  }
  return std::nullopt;
}

}  // namespace aicf::backend::cpu
