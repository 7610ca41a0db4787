// transpose on CUDA: where the innermost axis moves, in tiles through shared memory, so that both sides are walked
// along their own lines; else rows of the operand are copied.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/elementwise.h"
#include "backend/cuda/index_space.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/scalar.h"

namespace aicf::backend::cuda {
namespace {

// Words along a tile's side, one for each lane of a warp.
constexpr int64_t kSide = 32;
// Of either axis of a tile: with fewer most lanes would idle, while lines so short share cache lines anyway.
constexpr int64_t kShortest = 16;

// Row r of the result runs along its last axis (columns); in the source, columns are `stride` apart and rows are next
// to each other.
struct Tiles {
  IndexSpace space;
  size_t rows_axis = 0;
  int64_t word = 1;  // elements moved as one, a word by word block turned in registers
  int64_t rows = 0, columns = 0, stride = 0;
};

// {} where a plain copy does better.
Tiles tiles_of(const KernelQuery& query, const std::vector<int64_t>& strides) {
  Tiles t;
  t.space = merged(query.out[0].shape, {strides});
  const std::vector<int64_t>& source = t.space.strides[0];
  t.rows_axis = static_cast<size_t>(std::find(source.begin(), source.end(), 1) - source.begin());
  if (t.rows_axis + 1 >= source.size()) return {};
  t.rows = t.space.dims[t.rows_axis];
  t.columns = t.space.dims.back();
  t.stride = source.back();
  if (std::min(t.rows, t.columns) < kShortest) return {};
  const auto size = static_cast<int64_t>(size_of(query.out[0].dtype));
  if (size < 4 && t.rows % (4 / size) == 0 && t.columns % (4 / size) == 0) t.word = 4 / size;
  return t;
}

Generated tiled(const KernelQuery& query, const Tiles& t) {
  const int64_t side = kSide * t.word;
  const std::vector<int64_t> dense = dense_strides(Shape(t.space.dims));
  // One tile a block: the other axes, then tiles along rows and columns.
  std::vector<int64_t> blocks, from, to;
  for (size_t k = 0; k + 1 < t.space.dims.size(); ++k) {
    if (k == t.rows_axis) continue;
    blocks.push_back(t.space.dims[k]);
    from.push_back(t.space.strides[0][k]);
    to.push_back(dense[k]);
  }
  for (const int64_t extent : {t.rows, t.columns}) blocks.push_back((extent + side - 1) / side);

  const IndexText index(query.out[0].shape.elements());
  const std::string type = bits_type(size_of(query.out[0].dtype));
  Generated g;
  g.what = ir::call_text(query.def, query.in);
  g.params = {{"const " + type + "* x", 0}, {type + "* y", 1}};
  g.threads = 256;
  g.blocks = 1;
  for (const int64_t n : blocks) g.blocks *= n;
  g.body = index.coordinates(blocks, "blockIdx.x", "q");
  g.body += fmt::format(R"(typedef {index} Index;
typedef Pack<{type}, {word}> Word;
// By row of the result, those of one lane's block apart: neither side meets a bank twice.
__shared__ Word tile[{word}][{side}][{side} + 1];
const int lane = threadIdx.x % {side}, line = threadIdx.x / {side};
const Index row = q{r} * {edge}, column = q{c} * {edge};
const {type}* from = x + ({from});
{type}* to = y + ({to});
#pragma unroll
for (int k = 0; k < {side} / 8; ++k) {{
  const int block = line + 8 * k;
  const Index r = row + lane * {word}, c = column + block * {word};
  if (r < {rows} && c < {columns}) {{
    Word in[{word}];
#pragma unroll
    for (int j = 0; j < {word}; ++j) in[j] = load_pack<{word}>(from + r + (c + j) * {stride});
#pragma unroll
    for (int i = 0; i < {word}; ++i) {{
      Word out;
#pragma unroll
      for (int j = 0; j < {word}; ++j) out.at[j] = in[j].at[i];
      tile[i][lane][block] = out;
    }}
  }}
}}
__syncthreads();
#pragma unroll
for (int k = 0; k < {edge} / 8; ++k) {{
  const int i = line + 8 * k;
  const Index r = row + i, c = column + lane * {word};
  if (r < {rows} && c < {columns}) store_pack(to + r * {pitch} + c, tile[i % {word}][i / {word}][lane]);
}}
)",
                        fmt::arg("index", index.type()), fmt::arg("type", type), fmt::arg("word", t.word),
                        fmt::arg("side", kSide), fmt::arg("edge", side), fmt::arg("r", blocks.size() - 2),
                        fmt::arg("c", blocks.size() - 1), fmt::arg("from", index.offset(from, "q")),
                        fmt::arg("to", index.offset(to, "q")), fmt::arg("rows", index.number(t.rows)),
                        fmt::arg("columns", index.number(t.columns)), fmt::arg("stride", index.number(t.stride)),
                        fmt::arg("pitch", index.number(dense[t.rows_axis])));
  return g;
}

PreparedKernel prepare(const KernelQuery& query) {
  if (query.out[0].shape.elements() == 0) return {};
  const std::vector<int64_t> dense = dense_strides(query.in[0].shape);
  std::vector<int64_t> strides;
  for (const int64_t axis : query.attrs.get_ints("perm")) strides.push_back(dense[axis]);
  const Tiles tiles = tiles_of(query, strides);
  return prepared(tiles.rows == 0 ? strided_copy(query, strides) : std::vector<Generated>{tiled(query, tiles)});
}

}  // namespace

void register_transpose(KernelTable& table) {
  table.push_back(
      {.op = "transpose", .variant = "tiled", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cuda
