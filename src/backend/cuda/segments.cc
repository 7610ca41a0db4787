#include "backend/cuda/segments.h"

#include <fmt/format.h>

#include "backend/cuda/index_space.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {
namespace {

// Pointers that surely fit the 4 KiB of parameters.
constexpr size_t kMaxParts = 256;

struct Part {
  int buffer = 0;
  int64_t begin = 0, length = 0;  // in a row of the whole
};

// Statements that choose the part in which column `c` lies, by halving.
std::string choice(std::span<const Part> parts, size_t first, const IndexText& index) {
  if (parts.size() == 1) {
    return fmt::format("part = p{}, begin = {}, length = {};\n", first, index.number(parts[0].begin),
                       index.number(parts[0].length));
  }
  const size_t half = parts.size() / 2;
  return fmt::format("if (c < {}) {{\n{}}} else {{\n{}}}\n", index.number(parts[half].begin),
                     choice(parts.first(half), first, index), choice(parts.subspan(half), first + half, index));
}

}  // namespace

std::vector<Generated> move_segments(const KernelQuery& query, const Segments& segments) {
  if (segments.whole.shape.elements() == 0) return {};
  int64_t inner = 1;
  for (int i = segments.axis + 1; i < segments.whole.shape.rank(); ++i) inner *= segments.whole.shape[i];
  const size_t size = size_of(segments.whole.dtype);
  // The largest packs of which every part has whole ones.
  auto width = static_cast<int64_t>(16 / size);
  for (const TensorType& part : segments.parts) {
    while (part.shape[segments.axis] * inner % width != 0) width /= 2;
  }
  std::vector<Part> parts;
  int64_t row = 0;
  for (size_t k = 0; k < segments.parts.size(); ++k) {
    const int64_t length = segments.parts[k].shape[segments.axis] * inner / width;
    if (length > 0) parts.push_back({segments.first_part + static_cast<int>(k), row, length});
    row += length;
  }
  const int64_t rows = segments.whole.shape.elements() / width / row;
  const IndexText index(segments.whole.shape.elements());
  const std::string type = bits_type(segments.whole.dtype);
  std::vector<Generated> kernels;
  for (size_t first = 0; first < parts.size(); first += kMaxParts) {
    const std::span<const Part> group = std::span(parts).subspan(first, std::min(kMaxParts, parts.size() - first));
    const int64_t begin = group.front().begin, columns = group.back().begin + group.back().length - begin;
    const Grid grid = grid_for(rows * columns);
    Generated g;
    g.what = ir::call_text(query.def, query.in);
    g.params.push_back({type + "* whole", segments.whole_buffer});
    for (size_t k = 0; k < group.size(); ++k) {
      g.params.push_back({fmt::format("const {}* p{}", type, k), group[k].buffer});
    }
    g.blocks = grid.blocks;
    g.threads = grid.threads;
    g.body = fmt::format("const {} i = {};\nif (i >= {}) return;\n", index.type(), index.thread(grid.threads),
                         index.number(rows * columns));
    g.body += fmt::format("const {} row = i / {}, c = i - row * {} + {};\n", index.type(), index.number(columns),
                          index.number(columns), index.number(begin));
    g.body += fmt::format("const {}* part;\n{} begin, length;\n", type, index.type());
    g.body += choice(group, 0, index);
    const std::string in_part = fmt::format("part + (row * length + c - begin) * {}", index.number(width));
    const std::string in_whole = fmt::format("whole + (row * {} + c) * {}", index.number(row), index.number(width));
    g.body += fmt::format("store_pack({}, load_pack<{}>({}));\n", in_whole, width, in_part);
    kernels.push_back(std::move(g));
  }
  return kernels;
}

}  // namespace aicf::backend::cuda
