// Reductions over adjacent elements. A group of threads owns the lanes of a block of the reduction tree and, where they
// fit, keeps the block's operands in registers from stage to stage; the results of several blocks of a row meet in
// shared memory. Longer rows are read again in each stage.
//
// A result that has one element a row may take the storage of an operand that all threads of the row read: those
// operands are read first, and it is written last, with an exchange between. All others are read and written by one
// thread.
#include <fmt/format.h>

#include <utility>

#include "backend/cuda/fused.h"
#include "backend/cuda/fused_row_plan.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {

using Node = ops::Loops::Node;

namespace {

// Bytes of shared memory for the results of blocks.
constexpr size_t kSharedBytes = 32 << 10;

class RowWriter {
 public:
  explicit RowWriter(RegionKernels& kernels)
      : kernels_(kernels),
        loops_(kernels.loops()),
        index_(kernels.index()),
        plan_(kernels),
        reductions_(kernels.of_kind(Node::Kind::reduce)),
        columns_(kernels.of_kind(Node::Kind::column)),
        row_(loops_, index_, "r", row_coordinates()) {}

  void write() {
    std::string body = threads_text();
    if (!columns_.empty()) body += begin_chunk();
    body += begin_row();
    for (int stage = 0; stage <= plan_.last_stage; ++stage) {
      if (stage <= plan_.element_stage) body += visit(stage);
      if (!plan_.spread) body += results_of(stage);
    }
    if (!plan_.spread) body += kept_stores();
    if (!columns_.empty()) body += end_chunk();
    std::vector<int> results, roots = reductions_;
    for (size_t r = 0; r < loops_.results.size(); ++r) {
      const auto result = static_cast<int>(r);
      if (kernels_.is_column(result) || (plan_.spread && !kernels_.is_full(result))) continue;
      results.push_back(result);
      roots.push_back(loops_.results[r].node);
    }
    roots.insert(roots.end(), columns_.begin(), columns_.end());
    kernels_.add(body, needed_nodes(loops_, roots), results, plan_.thread_blocks, plan_.threads);
    if (plan_.spread) finish_rows(kernels_, {reductions_, declarations_, plan_.rows, plan_.blocks, 1});
    if (!columns_.empty()) finish_columns(kernels_, {columns_, declarations_, 1, plan_.chunks, plan_.n});
  }

 private:
  std::string number(int64_t value) const { return index_.number(value); }
  std::string type(int id) const { return element_type(loops_, kernels_.node(id).dtype); }
  std::string space(int id) const { return RegionKernels::space(kernels_.node(id)); }
  bool shares_row() const { return plan_.groups > 1; }

  // --- threads and rows -------------------------------------------------------------------------------------------

  std::string threads_text() const {
    std::string text = fmt::format("const int t = threadIdx.x % {};\n", plan_.group);
    if (shares_row()) text += fmt::format("const int part = threadIdx.x / {};\n", plan_.group);
    text += fmt::format("const {} wanted = ({})blockIdx.x * {} + threadIdx.x / {};\n", index_.type(), index_.type(),
                        number(plan_.units), number(static_cast<int64_t>(plan_.group) * plan_.groups));
    return text;
  }

  // The last one again where there are no more, as the whole warp must take part.
  std::string clamped(const char* name, const char* live, const std::string& asked, int64_t count) const {
    return fmt::format("const bool {1} = {2} < {3};\nconst {4} {0} = {1} ? {2} : {3} - 1;\n", name, live, asked,
                       number(count), index_.type());
  }

  std::string begin_chunk() {
    std::string text = clamped("chunk", "taken", "wanted", plan_.chunks);
    for (int id : columns_) {
      declarations_.push_back(kernels_.workspace("w", id, plan_.chunks * plan_.n));
      text += declarations_.back();
      if (plan_.columns_kept)
        text += fmt::format("{0}::Acc sum{1}[{2}][{3}];\n{0}::clear(sum{1});\n", space(id), id, packs(), plan_.length);
    }
    const auto chunk = static_cast<int64_t>(kColumnChunk);
    std::string count = number(std::min(plan_.rows, chunk));
    // Where all threads of a warp have one chunk, they end with its rows.
    if (plan_.group == 32 && plan_.rows > chunk)
      count = fmt::format("({0} - chunk * {1} < {1} ? {0} - chunk * {1} : {1})", number(plan_.rows), number(chunk));
    text += fmt::format("#pragma unroll 1\nfor ({0} i = 0; i < {1}; ++i) {{\nconst {0} asked = chunk * {2} + i;\n",
                        index_.type(), count, number(chunk));
    return text;
  }

  std::string begin_row() {
    std::string text;
    if (plan_.spread) {
      text += clamped("unit", "live", "wanted", plan_.rows * plan_.blocks);
      text += fmt::format("const {0} row = unit / {1}, block = unit % {1};\n", index_.type(), number(plan_.blocks));
    } else if (columns_.empty()) {
      text += clamped("row", "live", "wanted", plan_.rows);
    } else {
      text += clamped("row", "valid", "asked", plan_.rows) + "const bool live = valid && taken;\n";
    }
    const std::vector<int64_t> outer(loops_.dims.begin(), loops_.dims.begin() + loops_.first_reduced);
    text += index_.coordinates(outer, "row", "c");
    if (!plan_.spread && shares_row()) {
      size_t bytes = 0;
      for (int id : reductions_)
        bytes += RegionKernels::accumulator_size(kernels_.node(id)) * static_cast<size_t>(plan_.blocks);
      for (int id : reductions_) text += meeting_place(id, bytes <= kSharedBytes);
    }
    if (plan_.spread) {
      for (int id : reductions_) {
        declarations_.push_back(kernels_.workspace("w", id, plan_.rows * plan_.blocks));
        text += declarations_.back();
      }
    }
    // What all threads of the row read is read before any of it is written.
    std::vector<int> roots;
    for (const ops::Loops::Result& r : loops_.results) roots.push_back(r.node);
    const std::vector<bool> needed = needed_nodes(loops_, roots);
    for (size_t id = 0; id < loops_.nodes.size(); ++id) {
      const Node& node = loops_.nodes[id];
      if (needed[id] && node.kind == Node::Kind::load && node.inputs.empty() &&
          !kernels_.varies(static_cast<int>(id)) && !plan_.spread)
        row_.element(static_cast<int>(id));
    }
    return text + row_.take();
  }

  // Of the results of a row's blocks.
  std::string meeting_place(int id, bool shared) {
    if (shared) return fmt::format("__shared__ {}::Acc met{}[{}];\n", space(id), id, plan_.blocks);
    return kernels_.workspace("all", id, plan_.thread_blocks * plan_.blocks) +
           fmt::format("{}::Acc* const met{} = all{} + ({})blockIdx.x * {};\n", space(id), id, id, index_.type(),
                       number(plan_.blocks));
  }

  std::string end_chunk() const {
    std::string text = shares_row() ? "__syncthreads();\n}\n" : "}\n";
    if (!plan_.columns_kept) return text;
    text += begin_blocks() + begin_packs(true);
    text += fmt::format("if (taken{}) {{\n#pragma unroll\nfor (int l = 0; l < {}; ++l) {{\n",
                        plan_.is_exact() ? "" : " && " + inside(), plan_.length);
    for (int id : columns_) text += fmt::format("w{0}[chunk * {1} + p + l] = sum{0}[q][l];\n", id, number(plan_.n));
    return text + "}\n}\n}\n}\n";
  }

  // --- elements ---------------------------------------------------------------------------------------------------

  int packs() const { return plan_.resident ? plan_.block_packs * plan_.group_blocks : plan_.block_packs; }
  std::string inside() const { return "p < " + number(plan_.n); }

  std::string begin_blocks() const {
    if (plan_.group_blocks == 1) return "{\n";
    return fmt::format("#pragma unroll{}\nfor (int k = 0; k < {}; ++k) {{\n", plan_.resident ? "" : " 1",
                       plan_.group_blocks);
  }
  std::string block() const {
    if (plan_.spread) return "block";
    if (!shares_row()) return "0";
    return plan_.group_blocks == 1 ? "part" : fmt::format("(k * {} + part)", plan_.groups);
  }

  // Over a thread's packs in a block: p is where pack q begins in the row.
  std::string begin_packs(bool all) const {
    const bool numbered = plan_.resident && plan_.group_blocks > 1;
    std::string text = fmt::format("#pragma unroll\nfor (int b = 0; b < {}; ++b) {{\n", plan_.block_packs);
    if (all) text += fmt::format("const int q = {}b;\n", numbered ? fmt::format("k * {} + ", plan_.block_packs) : "");
    text += fmt::format("const {0} p = ({0})((b * {1} + t) * {2})", index_.type(), plan_.group, plan_.length);
    if (block() != "0") text += fmt::format(" + ({}){} * {}", index_.type(), block(), number(kRowBlock));
    return text + ";\n";
  }

  std::vector<std::string> row_coordinates() const {
    std::vector<std::string> names = coordinate_names(loops_, "c");
    for (int k = loops_.first_reduced; k < loops_.end_reduced; ++k) names[static_cast<size_t>(k)] = number(0);
    return names;
  }

  // Of elements at `at` in the row; the statements that define them go to `text`.
  std::vector<std::string> coordinates(const std::string& at, const char* prefix, std::string& text) const {
    std::vector<std::string> names = row_coordinates();
    const std::vector<int64_t> reduced(loops_.dims.begin() + loops_.first_reduced,
                                       loops_.dims.begin() + loops_.end_reduced);
    if (reduced.size() == 1) {
      names[static_cast<size_t>(loops_.first_reduced)] = at;
      return names;
    }
    text += index_.coordinates(reduced, at, prefix);
    for (size_t k = 0; k < reduced.size(); ++k)
      names[static_cast<size_t>(loops_.first_reduced) + k] = fmt::format("{}{}", prefix, k);
    return names;
  }

  // The nodes of a stage that an array holds are not computed; the inputs that others take from the row are known.
  void bind(NodeText& scope, int stage) {
    const std::vector<bool>& visits = plan_.visits[static_cast<size_t>(stage)];
    const auto known = [&](int id) {
      if (!kernels_.varies(id) && !scope.has(id)) scope.set(id, row_.element(id));
    };
    for (size_t i = 0; i < visits.size(); ++i) {
      if (!visits[i] || (plan_.arrays[i].first >= 0 && plan_.resident && plan_.arrays[i].first < stage)) continue;
      for (int input : loops_.nodes[i].inputs) known(input);
    }
    for (int id : reductions_of(stage)) known(kernels_.node(id).inputs[0]);
    if (stage != plan_.element_stage) return;
    for (int id : columns_) known(kernels_.node(id).inputs[0]);
    for (size_t r = 0; r < loops_.results.size(); ++r) {
      if (kernels_.is_full(static_cast<int>(r))) known(loops_.results[r].node);
    }
  }

  std::vector<int> reductions_of(int stage) const {
    std::vector<int> list;
    for (int id : reductions_) {
      if (kernels_.node(id).stage == stage + 1) list.push_back(id);
    }
    return list;
  }

  // An array that is filled in this stage before anything is computed.
  bool is_read(int id, int stage) const {
    const RowPlan::Array& array = plan_.arrays[static_cast<size_t>(id)];
    if (kernels_.node(id).kind != Node::Kind::load || array.first < 0) return false;
    return plan_.resident ? array.first == stage : plan_.visits[static_cast<size_t>(stage)][static_cast<size_t>(id)];
  }
  bool is_filled(int id, int stage) const {
    return kernels_.node(id).kind != Node::Kind::load && plan_.arrays[static_cast<size_t>(id)].first == stage;
  }
  int count() const { return static_cast<int>(loops_.nodes.size()); }

  std::string visit(int stage) {
    std::string declared, reads = read_streams(stage), steps = compute(stage), after;
    for (int id = 0; id < count(); ++id) {
      if (is_read(id, stage) || is_filled(id, stage))
        declared += fmt::format("Pack<{}, {}> a{}[{}];\n", type(id), plan_.length, id, packs());
    }
    std::string text = row_.take();
    for (int id : reductions_of(stage)) {
      if (!shares_row() && !plan_.spread) text += fmt::format("{}::Acc all{};\n", space(id), id);
    }
    if (plan_.resident) text += std::exchange(declared, {});
    text += begin_blocks() + declared + reads;
    for (int id : reductions_of(stage)) {
      text +=
          fmt::format("{0}::Acc acc{1}[{2}][{3}];\n{0}::clear(acc{1});\n", space(id), id, plan_.vectors, plan_.length);
    }
    text += steps;
    for (int id : reductions_of(stage)) text += block_result(id);
    return text + "}\n";
  }

  std::string block_result(int id) const {
    const std::string lanes = fmt::format("{}::of_lanes<{}>(acc{})", space(id), plan_.group, id);
    if (plan_.spread) {
      return fmt::format("const {0}::Acc all{1} = {2};\nif (t == 0 && live) w{1}[unit] = all{1};\n", space(id), id,
                         lanes);
    }
    if (!shares_row()) return fmt::format("all{} = {};\n", id, lanes);
    const std::string last =
        plan_.groups * plan_.group_blocks == plan_.blocks ? "" : fmt::format(" && {} < {}", block(), plan_.blocks);
    return fmt::format("const {0}::Acc one{1} = {2};\nif (t == 0{3}) met{1}[{4}] = one{1};\n", space(id), id, lanes,
                       last, block());
  }

  // Many reads in flight: before the first is waited for.
  std::string read_streams(int stage) {
    std::string at, elements, text;
    NodeText pack(loops_, index_, "p", coordinates("p", "g", at));
    NodeText element(loops_, index_, "u", coordinates("h", "h_", elements));
    bind(pack, stage);
    bind(element, stage);
    std::string packs;
    std::vector<std::string> apart;
    for (int id = 0; id < count(); ++id) {
      if (!is_read(id, stage)) continue;
      if (is_pack(loops_, id, plan_.length)) {
        const std::string read = pack.pack(id, plan_.length);
        packs += fmt::format("{}a{}[q] = {};\n", pack.take(), id, read);
      } else {
        apart.push_back(fmt::format("a{}[q].at[l] = {};\n", id, element.element(id)));
      }
    }
    if (packs.empty() && apart.empty()) return {};
    text = begin_packs(true) + guard() + at + packs;
    if (!apart.empty()) {
      text += fmt::format("#pragma unroll\nfor (int l = 0; l < {}; ++l) {{\nconst {} h = p + l;\n", plan_.length,
                          index_.type());
      text += elements + element.take();
      for (const std::string& s : apart) text += s;
      text += "}\n";
    }
    return text + end_guard() + "}\n";
  }

  std::string guard() const { return plan_.is_exact() ? "" : "if (" + inside() + ") {\n"; }
  std::string end_guard() const { return plan_.is_exact() ? "" : "}\n"; }

  std::string compute(int stage) {
    const std::vector<bool>& visits = plan_.visits[static_cast<size_t>(stage)];
    std::string at, elements, before, inner, after;
    NodeText pack(loops_, index_, "p", coordinates("p", "g", at));
    NodeText element(loops_, index_, "t", coordinates("e", "e_", elements));
    bind(pack, stage);
    bind(element, stage);
    for (int id = 0; id < count(); ++id) {
      if (!visits[static_cast<size_t>(id)]) continue;
      const bool is_load = kernels_.node(id).kind == Node::Kind::load;
      const RowPlan::Array& array = plan_.arrays[static_cast<size_t>(id)];
      if (array.first >= 0 && (is_load || array.first < stage)) {
        element.set(id, fmt::format("a{}[q].at[l]", id));
      } else if (is_load && is_pack(loops_, id, plan_.length)) {
        const std::string read = pack.pack(id, plan_.length);
        before += fmt::format("{}const Pack<{}, {}> a{} = {};\n", pack.take(), type(id), plan_.length, id, read);
        element.set(id, fmt::format("a{}.at[l]", id));
      }
    }
    for (int id = 0; id < count(); ++id) {
      if (is_filled(id, stage) && visits[static_cast<size_t>(id)])
        inner += fmt::format("a{}[q].at[l] = {};\n", id, element.element(id));
    }
    for (int id : reductions_of(stage)) {
      inner += fmt::format("acc{0}[b % {1}][l] = {2}::combine(acc{0}[b % {1}][l], load({3}));\n", id, plan_.vectors,
                           space(id), element.element(kernels_.node(id).inputs[0]));
    }
    if (stage == plan_.element_stage) {
      for (int id : columns_) inner += column_step(id, element.element(kernels_.node(id).inputs[0]));
      for (size_t r = 0; r < loops_.results.size(); ++r) {
        const ops::Loops::Result& result = loops_.results[r];
        if (!kernels_.is_full(static_cast<int>(r))) continue;
        before += fmt::format("Pack<{}, {}> y{}_pack;\n", type(result.node), plan_.length, r);
        inner += fmt::format("y{}_pack.at[l] = {};\n", r, element.element(result.node));
        after += fmt::format("if (live) store_pack(y{0} + ({1}), y{0}_pack);\n", r, pack.offset(result.place));
      }
    }
    return begin_packs(true) + guard() + at + before +
           fmt::format("#pragma unroll\nfor (int l = 0; l < {}; ++l) {{\nconst {} e = p + l;\n", plan_.length,
                       index_.type()) +
           elements + element.take() + inner + "}\n" + after + end_guard() + "}\n";
  }

  std::string column_step(int id, const std::string& value) const {
    const std::string s = space(id);
    if (plan_.columns_kept)
      return fmt::format("if (live) sum{0}[q][l] = {1}::combine(sum{0}[q][l], load({2}));\n", id, s, value);
    return fmt::format(
        "if (live) {{\n{1}::Acc* const sum = w{0} + (chunk * {3} + e);\n"
        "*sum = {1}::combine(i == 0 ? {1}::identity() : *sum, load({2}));\n}}\n",
        id, s, value, number(plan_.n));
  }

  // --- between the stages -----------------------------------------------------------------------------------------

  std::string results_of(int stage) {
    std::string text;
    for (int id : reductions_of(stage)) {
      std::string all = fmt::format("all{}", id);
      if (shares_row()) {
        if (text.empty()) text = "__syncthreads();\n";
        int depth = 1;
        for (int64_t reach = kRowBlock; reach < plan_.blocks; reach *= static_cast<int64_t>(kRowBlock)) ++depth;
        all = fmt::format("{}::of_blocks<{}>(met{}, {}, 0, t)", space(id), depth, id, plan_.blocks);
      }
      text += fmt::format("const {} v{} = store<{}>({});\n", type(id), id, type(id), all);
      row_.set(id, fmt::format("v{}", id));
    }
    return text;
  }

  std::string kept_stores() {
    const std::string stores = kernels_.store_kept(row_, kernels_.kept_results());
    const std::string before = row_.take();
    if (stores.empty()) return before;
    return before + fmt::format("if (live && t == 0{}) {{\n{}}}\n", shares_row() ? " && part == 0" : "", stores);
  }

  RegionKernels& kernels_;
  const ops::Loops& loops_;
  const IndexText& index_;
  const RowPlan plan_;
  const std::vector<int> reductions_, columns_;
  std::vector<std::string> declarations_;  // of what is handed on in the workspace
  NodeText row_;                           // what is one value for a row
};

}  // namespace

void add_row_kernels(RegionKernels& kernels) { RowWriter(kernels).write(); }

}  // namespace aicf::backend::cuda
