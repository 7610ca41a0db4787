// Reductions over elements that are apart in memory: a thread takes a chunk of the reduced elements, in order, of some
// adjacent columns.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/fused.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {

using Node = ops::Loops::Node;

namespace {

class ColumnWriter {
 public:
  explicit ColumnWriter(RegionKernels& kernels)
      : kernels_(kernels),
        loops_(kernels.loops()),
        index_(kernels.index()),
        reductions_(kernels.of_kind(Node::Kind::reduce)),
        chunks_(static_cast<int64_t>(blocks_of(static_cast<size_t>(loops_.n()), kColumnChunk))) {
    std::vector<int> roots = reductions_;
    for (size_t r = 0; r < loops_.results.size(); ++r) {
      const auto result = static_cast<int>(r);
      if (chunks_ > 1 && !kernels_.is_full(result)) continue;
      results_.push_back(result);
      roots.push_back(loops_.results[r].node);
    }
    needed_ = needed_nodes(loops_, roots);
    choose_length();
  }

  void write() {
    const int64_t units = loops_.outer() * chunks_ * (loops_.inner() / length_);
    const int threads = units < 2 * kFewThreads ? 64 : 256;
    std::string body = start(units, threads) + walk();
    body += chunks_ == 1 ? finish() : hand_on();
    kernels_.add(body, needed_, results_, (units + threads - 1) / threads, threads);
    if (chunks_ > 1) finish_columns(kernels_, {reductions_, declarations_, loops_.outer(), chunks_, loops_.inner()});
  }

 private:
  std::string number(int64_t value) const { return index_.number(value); }
  std::string type(int id) const { return element_type(loops_, kernels_.node(id).dtype); }
  std::string space(int id) const { return RegionKernels::space(kernels_.node(id)); }
  int count() const { return static_cast<int>(loops_.nodes.size()); }
  // Read anew for each of the reduced elements.
  bool is_stream(int id) const {
    return needed_[static_cast<size_t>(id)] && kernels_.node(id).kind == Node::Kind::load && kernels_.varies(id) &&
           is_pack(loops_, id, length_);
  }

  void choose_length() {
    size_t widest = 1;
    int64_t bytes = 0;
    for (int id = 0; id < count(); ++id) {
      const Node& node = kernels_.node(id);
      if (!needed_[static_cast<size_t>(id)] || node.kind != Node::Kind::load || !kernels_.varies(id)) continue;
      widest = std::max(widest, size_of(node.dtype));
      bytes += static_cast<int64_t>(size_of(node.dtype));
    }
    for (int id : reductions_) widest = std::max(widest, RegionKernels::accumulator_size(kernels_.node(id)) / 2);
    length_ = vector_length(loops_.dims.back(), widest);
    while (length_ > 1 && loops_.outer() * chunks_ * loops_.inner() / length_ < kFewThreads) length_ /= 2;
    const int64_t words = std::max<int64_t>(1, bytes * length_ / 4);
    unroll_ = std::clamp<int64_t>(32 / words, 1, std::min<int64_t>(loops_.n(), 16));
  }

  // Axes before, of and after the reduced elements, the last one at `last`.
  std::vector<std::string> coordinates(const std::string& last) const {
    std::vector<std::string> names = coordinate_names(loops_, "c");
    if (loops_.end_reduced - loops_.first_reduced == 1) names[static_cast<size_t>(loops_.first_reduced)] = "p";
    names.back() = last;
    return names;
  }
  std::string last_axis() const { return fmt::format("c{}", loops_.dims.size() - 1); }

  std::string start(int64_t units, int threads) const {
    const std::string columns = number(loops_.inner() / length_);
    std::string text = fmt::format("const {} unit = {};\nif (unit >= {}) return;\n", index_.type(),
                                   index_.thread(threads), number(units));
    text += fmt::format("const {0} column = unit % {1} * {2}, block = unit / {1};\n", index_.type(), columns,
                        number(length_));
    text += fmt::format("const {0} outer = block / {1}, first = block % {1} * {2};\n", index_.type(), number(chunks_),
                        number(kColumnChunk));
    text += fmt::format("const int rows = {0} - first < {1} ? (int)({0} - first) : (int){1};\n", number(loops_.n()),
                        number(kColumnChunk));
    text += along("outer", 0, loops_.first_reduced);
    text += along("column", loops_.end_reduced, static_cast<int>(loops_.dims.size()));
    for (int id : reductions_) {
      text += fmt::format("{0}::Acc acc{1}[1][{2}];\n{0}::clear(acc{1});\n", space(id), id, length_);
    }
    return text;
  }

  // The coordinates along axes [begin, end) of element `at` of them.
  std::string along(const std::string& at, int begin, int end) const {
    const std::vector<int64_t> dims(loops_.dims.begin() + begin, loops_.dims.begin() + end);
    const std::string prefix = at + "_";
    std::string text = index_.coordinates(dims, at, prefix);
    for (int k = begin; k < end; ++k)
      text += fmt::format("const {} c{} = {}{};\n", index_.type(), k, prefix, k - begin);
    return text;
  }

  std::string reduced_axes() const {
    return loops_.end_reduced - loops_.first_reduced == 1 ? "" : along("p", loops_.first_reduced, loops_.end_reduced);
  }

  std::string begin_rows() const {
    return fmt::format(
        "#pragma unroll\nfor (int u = 0; u < {0}; ++u) {{\nif (base + u >= rows) continue;\n"
        "const {1} p = first + (base + u);\n{2}",
        unroll_, index_.type(), reduced_axes());
  }

  // Many reads in flight: before the first is waited for.
  std::string walk() {
    NodeText pack(loops_, index_, "p", coordinates(last_axis())), element(loops_, index_, "t", coordinates("e"));
    std::string declared, reads, before, inner, after;
    NodeText reading(loops_, index_, "q", coordinates(last_axis()));
    for (int id = 0; id < count(); ++id) {
      if (!is_stream(id)) continue;
      const std::string read = reading.pack(id, length_);
      declared += fmt::format("Pack<{}, {}> a{}[{}];\n", type(id), length_, id, unroll_);
      reads += fmt::format("{}a{}[u] = {};\n", reading.take(), id, read);
      element.set(id, fmt::format("a{}[u].at[l]", id));
    }
    std::string steps;
    for (int id : reductions_) {
      steps += fmt::format("acc{0}[0][l] = {1}::combine(acc{0}[0][l], load({2}));\n", id, space(id),
                           element.element(kernels_.node(id).inputs[0]));
    }
    for (int r : results_) {
      if (!kernels_.is_full(r)) continue;
      const ops::Loops::Result& result = loops_.results[static_cast<size_t>(r)];
      before += fmt::format("Pack<{}, {}> y{}_pack;\n", type(result.node), length_, r);
      steps += fmt::format("y{}_pack.at[l] = {};\n", r, element.element(result.node));
      after += fmt::format("store_pack(y{0} + ({1}), y{0}_pack);\n", r, pack.offset(result.place));
    }
    std::string text = fmt::format("for (int base = 0; base < rows; base += {}) {{\n", unroll_) + declared;
    if (!reads.empty()) text += begin_rows() + reads + "}\n";
    return text + begin_rows() + before + begin_columns() + element.take() + steps + "}\n" + after + "}\n}\n";
  }

  std::string begin_columns() const {
    return fmt::format("#pragma unroll\nfor (int l = 0; l < {}; ++l) {{\nconst {} e = {} + l;\n", length_,
                       index_.type(), last_axis());
  }

  std::string hand_on() {
    std::string text;
    for (int id : reductions_) {
      declarations_.push_back(kernels_.workspace("w", id, loops_.outer() * chunks_ * loops_.inner()));
      text += declarations_.back();
      text += fmt::format(
          "Pack<{0}::Acc, {1}> all{2};\n#pragma unroll\nfor (int l = 0; l < {1}; ++l) all{2}.at[l] = "
          "acc{2}[0][l];\nstore_pack(w{2} + (block * {3} + column), all{2});\n",
          space(id), length_, id, number(loops_.inner()));
    }
    return text;
  }

  // Where a chunk is all there is.
  std::string finish() {
    std::vector<std::string> names = coordinates("e");
    for (int k = loops_.first_reduced; k < loops_.end_reduced; ++k) names[static_cast<size_t>(k)] = number(0);
    NodeText element(loops_, index_, "t", names);
    std::string values, packs, inner, stores;
    for (int id : reductions_) {
      values += fmt::format("const {0} v{1} = store<{0}>(acc{1}[0][l]);\n", type(id), id);
      element.set(id, fmt::format("v{}", id));
    }
    names.back() = last_axis();
    NodeText pack(loops_, index_, "p", names);
    for (int r : kernels_.kept_results()) {
      const ops::Loops::Result& result = loops_.results[static_cast<size_t>(r)];
      packs += fmt::format("Pack<{}, {}> y{}_pack;\n", type(result.node), length_, r);
      inner += fmt::format("y{}_pack.at[l] = {};\n", r, element.element(result.node));
      stores += fmt::format("store_pack(y{0} + ({1}), y{0}_pack);\n", r, pack.offset(result.place));
    }
    return packs + begin_columns() + values + element.take() + inner + "}\n" + stores;
  }

  RegionKernels& kernels_;
  const ops::Loops& loops_;
  const IndexText& index_;
  const std::vector<int> reductions_;
  const int64_t chunks_;
  std::vector<int> results_;  // that the first kernel writes
  std::vector<bool> needed_;
  std::vector<std::string> declarations_;
  int length_ = 1;
  int64_t unroll_ = 1;
};

}  // namespace

void add_column_kernels(RegionKernels& kernels) { ColumnWriter(kernels).write(); }

}  // namespace aicf::backend::cuda
