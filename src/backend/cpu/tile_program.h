// The tile interpreter of fused regions. compile() makes a flat list of instructions of a region's loops, each of which
// works on a run of elements; TileRun runs it, part by part, with everything between loads and stores in a scratch that
// stays in the first-level cache.
//
// A program walks a space of rows × length elements. A value lives at one of three levels: once (the same everywhere),
// row (one for each row) or element. Rows are taken in groups: of one row, in tiles, when a row is long; of several
// rows, in one tile, when they are short. Then ops on values of rows run over the group's rows.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/api.h"
#include "backend/cpu/copy_rows.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/pointwise_chain.h"
#include "backend/cpu/reduce_tree.h"
#include "backend/cpu/tile_reduce.h"
#include "backend/cpu/tile_walk.h"
#include "ops/loops.h"

namespace aicf::backend::cpu {

enum class Level : uint8_t { once, row, element };

// Which part of a region a program computes, and over which space.
struct Frame {
  std::vector<int> axes = {};  // of the loops: the space, outermost first
  int row_axes = 0;            // the first so many of them choose a row
  // Results of reductions are read from memory (`reduced` of Sources), not computed.
  bool after_reductions = false;
  std::vector<int> results = {};  // of the region
  std::vector<int> columns = {};  // nodes: `column`, and `reduce` across rows; their partial results only
  std::vector<int> reduces = {};  // nodes: `reduce` along rows
  bool blocks_apart = false;      // of `reduces`, the blocks' results only, each block by itself
};

// An address relative to a launch.
struct At {
  int buffer = 0;
  size_t offset = 0;
  char* in(const KernelArgs& args) const { return static_cast<char*>(args.buffers[buffer]) + offset; }
};

// Where the nodes that a program reads are in memory, when they are not operands.
struct Sources {
  int operands = 0;                // buffers; results follow, then the workspace
  std::optional<At> product = {};  // elements in order
  std::vector<At> reduced = {};    // by node: elements over the kept axes in order, of type reduced_in
};

struct Instr {
  enum class Kind : uint8_t {
    constant,    // out is at `data`
    view,        // elements of a buffer where they are: `first` on, `each` apart
    load,        // elements of a buffer: in place where they are one run, else copied
    pick,        // the same, in[0] · pick further, 0 when that is not in [0, extent)
    index,       // numbers
    bits,        // random words; in: seed, offset
    tile,        // out = tile(in…)
    chain,       // a run of links, which name what they read and write
    repeat,      // out = each element of in[0], `length` times
    reduce,      // out (row) = in[0] (element), whole rows
    accumulate,  // lanes of block results of a row take in[0]
    combine,     // out (row) = from the blocks of the row
    column,      // a partial result takes in[0], row by row
  };
  Kind kind = Kind::tile;
  Level level = Level::element;
  uint8_t size = 0;         // bytes of an element of out
  bool wide_index = false;  // in[0] of pick is i64
  bool columns = false;     // a view of a row that is the same for all
  bool one = false;         // in[0] of pick and repeat is one value for the whole run
  bool by_row = false;      // the chain takes elements that are one for each row of a group
  bool reduces = false;     // the chain does
  int out = -1;
  int in[3] = {0, 0, 0};
  int arity = 0;
  TileFn tile = nullptr;
  const ir::OpDef* f32_op = nullptr;  // of a tile: the op that it is, where it may be a link of a chain
  unsigned scalars = 0;               // bit k: in[k] is one element, or one for each row
  int first_link = 0, links = 0;
  At at = {};
  const void* data = nullptr;  // of a constant, and what a view or a load reads instead of a buffer
  int walk = -1;
  int64_t first = 0, each = 0;
  int64_t across = 0;  // of a load: elements from one to the next along a row, where rows are one element apart
  int64_t fetch = 0;   // of a view: bytes of the next tile to ask for after each instruction, whole lines
  int64_t pick = 0, extent = 0;
  const char* base(const KernelArgs& args) const {
    return data != nullptr ? static_cast<const char*>(data) : at.in(args);
  }
  uint32_t ordinal = 0;  // of bits
  DType dtype = f32;
  int partial = -1;
};

// What is bound to a link before a chain runs.
struct ChainLink {
  enum class Kind : uint8_t { read, one, mask, write, reduce, fetch };
  Kind kind = Kind::read;
  Link::Fn fn = nullptr;
  int value = -1;   // that it reads or writes; the accumulator alone: -1
  size_t each = 0;  // as Link's
  int partial = -1;
  int store = -1;  // of a write: what becomes of the value, if that is all
};
inline constexpr size_t kMostLinks = 128;  // of a chain

// A reduction whose partial results are in the workspace: those of the blocks of a row, or of chunks of rows.
struct Partial {
  int node = -1;
  ReduceKind kind = ReduceKind::sum;
  const TreeFns* tree = nullptr;
  const ReduceTree<float>* f32_tree = nullptr;  // where `tree` is of f32
  size_t size = 0;
  At at = {};        // set by the kernel
  size_t lanes = 0;  // in the scratch: those of a block, then the results of the blocks of a row that is held whole
};

struct Store {
  int value = -1;
  int result = -1;  // buffer
  size_t size = 0;
  Level level = Level::element;
  bool past_cache = false;
  bool alone = false;     // the only store of a value that is computed at its level
  bool straight = false;  // a chain may write it past the cache
  int operands = 0;       // buffers that may be this result's too
  // Buffers that are still read after the value is there: where the result takes the storage of none of them, the
  // value is computed in place.
  std::vector<int> read_later = {};
};

// Elements from a row of a band to the next: no multiple of a page, lest they evict each other.
constexpr int64_t band_pitch(int64_t tile) { return (tile + 15) / 16 * 16 + 16; }

// Bytes on the stack of a part.
inline constexpr size_t kScratchBytes = size_t{256} << 10;

struct Program {
  struct Step {
    Level level = Level::element;
    std::vector<Instr> views = {};  // these first
    std::vector<Instr> instrs = {};
    bool fetched = false;  // chains fetch what its views see
  };
  int64_t rows = 1, length = 1;
  int64_t group = 1;  // rows
  int64_t tile = 1;   // elements
  // Rows that are loaded together where they lie across the lines of an operand. Units are bands, then, if no row is
  // reduced.
  int64_t band = 1;
  int64_t bytes = 0;     // of what is read and written element by element
  int64_t farthest = 0;  // elements ahead that are asked for in a pass over memory
  Step once;
  Step shared = {.level = Level::element};  // of the first tile: values that are the same for all
  std::vector<Step> steps;                  // of a group, in order
  std::vector<Walk> walks;
  std::vector<ChainLink> links;
  std::vector<Store> stores;
  std::vector<Partial> columns, reduces;
  std::vector<size_t> place;  // of each value in the scratch; SIZE_MAX: none
  size_t scratch_bytes = 0, slots_bytes = 0;
  std::vector<std::shared_ptr<const Tensor>> constants;

  const Step* last_of_elements() const { return steps.size() < 2 ? nullptr : &steps[steps.size() - 2]; }
  int64_t tiles() const { return group > 1 ? 1 : (length + tile - 1) / tile; }  // of a group
  bool in_bands() const { return band > 1 && reduces.empty() && columns.empty(); }
  int64_t units() const { return in_bands() ? rows / band : (rows + group - 1) / group * tiles(); }
  int64_t blocks() const { return static_cast<int64_t>(blocks_of(static_cast<size_t>(length), kRowBlock)); }
};

// nullopt: its tiles do not fit the scratch.
std::optional<Program> compile(const ops::Loops& loops, const ir::Graph& region, const Frame& frame,
                               const Sources& sources);

// One part's run of a program.
class TileRun {
 public:
  TileRun(const Program& program, const KernelArgs& args);
  ~TileRun();
  TileRun(const TileRun&) = delete;
  TileRun& operator=(const TileRun&) = delete;

  // Groups of rows, and the tiles of long rows, in order: units() of the program.
  void units(int64_t begin, int64_t end);
  // All of these rows, group by group.
  void rows(int64_t begin, int64_t end);
  // Elements [from, from + n) of these rows, row by row. REQUIRES: group == 1, and that no row is reduced in them but
  // block by block.
  void band(int64_t begin, int64_t end, int64_t from, int64_t n);
  // Where partial results go: those of columns to chunk `chunk`, those of the blocks of a row to `row`.
  void set_chunk(int64_t chunk) { chunk_ = chunk; }
  void set_block_row(int64_t row) { block_row_ = row; }
  // The chunk's results for n columns from `from` on become the identity.
  void start_chunk(int64_t from, int64_t n);

 private:
  enum class Mode : uint8_t { in_place, copied, past_cache };

  void start_group(int64_t row, int64_t rows);
  void start_tile(int64_t from, int64_t n);
  void group(int64_t row, int64_t rows);
  void tiles_of_band(int64_t begin, int64_t end);
  void run(const Program::Step& step);
  void view(const Instr& instr) {
    const int64_t from = instr.columns ? from_ : instr.each * first(instr.level);
    at_[instr.out] = instr.base(args_) + (instr.first + from) * instr.size;
  }
  void fetch(const Program::Step& step, int64_t instr);
  void run(const Instr& instr);
  void chain(const Instr& instr);
  void bind(const ChainLink& from, Link& link) const;
  void chain_of_row(const Instr& instr, Link* links);
  void rest_of_chain(const Instr& instr, const Link* links, size_t from, size_t n);
  void load(const Instr& instr);
  void load_across(const Instr& instr);
  void pick(const Instr& instr);
  void number(const Instr& instr);
  void draw(const Instr& instr);
  void repeat(const Instr& instr);
  void accumulate(const Instr& instr);
  void combine(const Instr& instr);
  void column(const Instr& instr);
  void store(Level level);
  Mode mode_of(const Store& store) const;
  void* own(int value) { return scratch_ + p_.place[static_cast<size_t>(value)]; }

  int64_t count(Level level) const { return level == Level::element ? n_ * rows_ : level == Level::row ? rows_ : 1; }
  // The linear index of the first element at that level.
  int64_t first(Level level) const {
    return level == Level::element ? row_ * p_.length + from_ : level == Level::row ? row_ : 0;
  }

  const Program& p_;
  const KernelArgs& args_;
  int64_t row_ = 0, rows_ = 1, from_ = 0, n_ = 0;
  int64_t chunk_ = 0, block_row_ = 0;
  int64_t band_row_ = 0;   // of this row in its band
  int64_t band_fill_ = 0;  // rows of the band to load now, from this one on
  int64_t ahead_ = 0;      // elements from what is read to what is asked for
  bool past_cache_ = false;
  uint64_t straight_ = 0;  // bit i: a chain writes this tile of store i past the cache
  const Chains& chains_ = chains();
  const CopyRowsFn copy_rows_ = find_copy_rows();
  const void** at_;  // of each value
  Mode* modes_;      // of each store
  alignas(64) char scratch_[kScratchBytes];
};

}  // namespace aicf::backend::cpu
