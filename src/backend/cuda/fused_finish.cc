// From partial results in the workspace to the results of a region.
#include <fmt/format.h>

#include <utility>

#include "backend/cuda/fused.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {

using Node = ops::Loops::Node;

namespace {

class Finisher {
 public:
  Finisher(RegionKernels& kernels, Partials partials)
      : kernels_(kernels), loops_(kernels.loops()), index_(kernels.index()), from_(std::move(partials)) {}

  void rows() {
    while (from_.count > static_cast<int64_t>(kRowBlock)) row_level();
    last_of_rows();
  }

  void columns() {
    while (from_.count > static_cast<int64_t>(kColumnChunk)) column_level();
    last_of_columns();
  }

 private:
  std::string number(int64_t value) const { return index_.number(value); }
  std::string space(int id) const { return RegionKernels::space(kernels_.node(id)); }
  static int64_t blocks_for(int64_t items, int64_t each) { return (items + each - 1) / each; }
  static int threads_for(int64_t items) { return items < kFewThreads ? 64 : 256; }

  std::string declarations() const {
    std::string text;
    for (const std::string& d : from_.declarations) text += d;
    return text;
  }

  // New memory for partial results; the pointers to it are m and the node's id.
  std::string next(int64_t count) {
    std::string text;
    Partials to = from_;
    to.declarations.clear();
    to.count = count;
    for (int id : from_.reductions) {
      const std::string declaration = kernels_.workspace("w", id, from_.outer * count * from_.inner);
      to.declarations.push_back(declaration);
      std::string here = declaration;
      here.replace(here.find(fmt::format(" w{} ", id)), 2, " m");
      text += here;
    }
    to_ = std::move(to);
    return text;
  }

  std::string unit(int64_t count, int threads) const {
    return fmt::format("const {} unit = {};\nif (unit >= {}) return;\n", index_.type(), index_.thread(threads),
                       number(count));
  }
  // Of a warp for each: the last one again where there are no more.
  std::string warp_unit(int64_t count, int threads) const {
    return fmt::format(
        "const int t = threadIdx.x % 32;\n"
        "const {0} wanted = ({0})blockIdx.x * {1} + threadIdx.x / 32;\n"
        "const {0} unit = wanted < {2} ? wanted : {2} - 1;\n",
        index_.type(), number(threads / 32), number(count));
  }

  void row_level() {
    const int64_t count = blocks_for(from_.count, static_cast<int64_t>(kRowBlock)), units = from_.outer * count;
    std::string body = declarations() + next(count) + warp_unit(units, 128);
    body += fmt::format("const {0} row = unit / {1}, first = unit % {1} * {2};\n", index_.type(), number(count),
                        number(kRowBlock));
    body += fmt::format("const int n = {0} - first < {1} ? (int)({0} - first) : (int){1};\n", number(from_.count),
                        number(kRowBlock));
    for (int id : from_.reductions) {
      body += fmt::format(
          "{0}::Acc const v{1} = {0}::row_block<{0}::Acc, 32, 2, 1, 4>(w{1} + (row * {2} + first), n, t);\n"
          "if (t == 0 && unit == wanted) m{1}[unit] = v{1};\n",
          space(id), id, number(from_.count));
    }
    kernels_.add(body, std::vector<bool>(loops_.nodes.size(), false), {}, blocks_for(units, 4), 128);
    from_ = to_;
  }

  void last_of_rows() {
    std::string body = declarations() + warp_unit(from_.outer, 128);
    NodeText row(loops_, index_, "r", coordinate_names(loops_, "c"));
    for (int id : from_.reductions) {
      body += fmt::format(
          "const {1} v{2} = store<{1}>({0}::row_block<{0}::Acc, 32, 2, 1, 4>(w{2} + unit * {3}, {4}, t));\n", space(id),
          element_type(loops_, kernels_.node(id).dtype), id, number(from_.count), from_.count);
    }
    body += coordinates("unit", 0, loops_.first_reduced);
    finish(row, body, "if (t != 0 || unit != wanted) return;\n", blocks_for(from_.outer, 4), 128);
  }

  // One thread for each column and chunk.
  std::string column_step(int id, const std::string& rows) const {
    return fmt::format(
        "{0}::Acc acc{1}[1] = {{{0}::identity()}};\n"
        "{0}::column_rows<{0}::Acc, 1, 8>(acc{1}, w{1} + ((outer * {2} + first) * {3} + column), {4}, ({5}){3});\n",
        space(id), id, number(from_.count), number(from_.inner), rows, index_.type());
  }

  void column_level() {
    const int64_t count = blocks_for(from_.count, static_cast<int64_t>(kColumnChunk));
    const int64_t units = from_.outer * count * from_.inner;
    const int threads = threads_for(units);
    std::string body = declarations() + next(count) + unit(units, threads);
    body += fmt::format("const {0} column = unit % {1}, outer = unit / {1} / {2}, first = unit / {1} % {2} * {3};\n",
                        index_.type(), number(from_.inner), number(count), number(kColumnChunk));
    body += fmt::format("const int rows = {0} - first < {1} ? (int)({0} - first) : (int){1};\n", number(from_.count),
                        number(kColumnChunk));
    for (int id : from_.reductions) body += column_step(id, "rows") + fmt::format("m{0}[unit] = acc{0}[0];\n", id);
    kernels_.add(body, std::vector<bool>(loops_.nodes.size(), false), {}, blocks_for(units, threads), threads);
    from_ = to_;
  }

  void last_of_columns() {
    const int64_t units = from_.outer * from_.inner;
    const int threads = threads_for(units);
    std::string body = declarations() + unit(units, threads);
    body += fmt::format("const {0} column = unit % {1}, outer = unit / {1}, first = 0;\n", index_.type(),
                        number(from_.inner));
    NodeText column(loops_, index_, "r", coordinate_names(loops_, "c"));
    for (int id : from_.reductions) {
      const char* const type = c_type(kernels_.node(id).dtype);
      body += column_step(id, std::to_string(from_.count)) +
              fmt::format("const {0} v{1} = store<{0}>(acc{1}[0]);\n", type, id);
    }
    if (kernels_.node(from_.reductions[0]).kind == Node::Kind::column) {
      columns_beside_rows(body, blocks_for(units, threads), threads);
      return;
    }
    body += coordinates("outer", 0, loops_.first_reduced) +
            coordinates("column", loops_.end_reduced, static_cast<int>(loops_.dims.size()));
    finish(column, body, "", blocks_for(units, threads), threads);
  }

  void columns_beside_rows(std::string body, int64_t blocks, int threads) {
    std::vector<int> results;
    for (size_t r = 0; r < loops_.results.size(); ++r) {
      if (!kernels_.is_column(static_cast<int>(r))) continue;
      results.push_back(static_cast<int>(r));
      body += fmt::format("y{}[column] = v{};\n", r, loops_.results[r].node);
    }
    kernels_.add(body, std::vector<bool>(loops_.nodes.size(), false), results, blocks, threads);
  }

  // Those along axes [begin, end) of element `at` of them.
  std::string coordinates(const std::string& at, int begin, int end) const {
    const std::vector<int64_t> dims(loops_.dims.begin() + begin, loops_.dims.begin() + end);
    const std::string prefix = fmt::format("{}_", at);
    std::string text = index_.coordinates(dims, at, prefix);
    for (int k = begin; k < end; ++k)
      text += fmt::format("const {} c{} = {}{};\n", index_.type(), k, prefix, k - begin);
    return text;
  }

  // What follows the reductions.
  void finish(NodeText& scope, std::string body, const char* leave, int64_t blocks, int threads) {
    for (int id : from_.reductions) scope.set(id, fmt::format("v{}", id));
    const std::vector<int> results = kernels_.kept_results();
    const std::string stores = kernels_.store_kept(scope, results);
    body += leave + scope.take() + stores;
    kernels_.add(body, needed_after(results), results, blocks, threads);
  }

  // Nodes that the results take from elsewhere than the reductions.
  std::vector<bool> needed_after(const std::vector<int>& results) const {
    std::vector<bool> needed(loops_.nodes.size(), false);
    for (int r : results) needed[static_cast<size_t>(loops_.results[static_cast<size_t>(r)].node)] = true;
    for (size_t i = needed.size(); i-- > 0;) {
      if (!needed[i] || loops_.nodes[i].kind == Node::Kind::reduce) continue;
      for (int input : loops_.nodes[i].inputs) needed[static_cast<size_t>(input)] = true;
    }
    return needed;
  }

  RegionKernels& kernels_;
  const ops::Loops& loops_;
  const IndexText& index_;
  Partials from_, to_;
};

}  // namespace

void finish_rows(RegionKernels& kernels, Partials partials) { Finisher(kernels, std::move(partials)).rows(); }
void finish_columns(RegionKernels& kernels, Partials partials) { Finisher(kernels, std::move(partials)).columns(); }

}  // namespace aicf::backend::cuda
