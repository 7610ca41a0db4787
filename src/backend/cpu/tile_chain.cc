// Which f32 ops of a step go in chains, and in which order. An op whose value another reads is followed by that one, if
// the rest that it reads is there; what is read otherwise is stored.
#include <algorithm>
#include <utility>

#include "aicf/error.h"
#include "backend/cpu/tile_draft.h"

namespace aicf::backend::cpu {
namespace {

using Kind = Instr::Kind;

// An op on the accumulator, or, of no op, a load that starts it anew.
struct Item {
  const Instr* instr = nullptr;
  LinkForm form = LinkForm::load;
  int operand = -1;  // beside the accumulator
  int mask = -1;     // of a select
};

// In order: an instruction as it is, or the items of a chain.
struct Piece {
  Instr instr;
  std::vector<Item> items = {};
  size_t ops = 0;
  size_t links = 0;                                  // at most, without fetches
  std::vector<std::pair<int, size_t>> fetches = {};  // values in memory, and the bytes of an element
};

// With fewer elements a row's results cost more to bring together than a second pass over the row.
constexpr int64_t kShortestReduced = 256;

// What fits the second-level cache comes soon enough.
constexpr int64_t kFetchedBytes = 1 << 20;

class Chainer {
 public:
  explicit Chainer(Draft& draft) : draft_(draft), pending_(draft.values.size(), false) {}

  void run() {
    std::vector<std::vector<Piece>> pieces(draft_.program.steps.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (draft_.program.steps[i].level == Level::element) pieces[i] = ordered(draft_.program.steps[i].instrs);
    }
    find_read(pieces);
    for (size_t i = 0; i < draft_.program.stores.size() && i < 64; ++i) {
      Store& s = draft_.program.stores[i];
      s.straight = s.alone && s.level == Level::element && read_[static_cast<size_t>(s.value)] == 0;
    }
    if (draft_.program.bytes >= kFetchedBytes) choose_fetches(pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (draft_.program.steps[i].level == Level::element) draft_.program.steps[i].instrs = instrs_of(pieces[i]);
    }
  }

 private:
  bool reduces_in_chain(const Instr& i) const {
    const Shape& shape = draft_.shape;
    return i.kind == Kind::reduce && shape.group == 1 && shape.tile >= kShortestReduced &&
           draft_.program.reduces[static_cast<size_t>(i.partial)].f32_tree != nullptr;
  }

  bool is_ready(const Instr& i) const {
    return std::none_of(i.in, i.in + i.arity, [&](int v) { return pending_[static_cast<size_t>(v)]; });
  }
  static bool reads(const Instr& i, int v) { return std::find(i.in, i.in + i.arity, v) != i.in + i.arity; }

  std::vector<Piece> ordered(const std::vector<Instr>& instrs) {
    std::vector<Piece> pieces;
    std::vector<bool> done(instrs.size(), false);
    for (const Instr& i : instrs) {
      if (i.out >= 0) pending_[static_cast<size_t>(i.out)] = true;
    }
    const auto take = [&](size_t t) {
      done[t] = true;
      if (instrs[t].out >= 0) pending_[static_cast<size_t>(instrs[t].out)] = false;
    };
    // By turns what is no op of a chain, and ops as long as one is ready: so chains are few and long.
    for (size_t left = instrs.size(); left > 0;) {
      const size_t before = left;
      for (size_t t = 0; t < instrs.size(); ++t) {
        if (done[t] || instrs[t].f32_op != nullptr || !is_ready(instrs[t])) continue;
        take(t), --left;
        pieces.push_back({.instr = instrs[t]});
      }
      bool open = false;  // the last piece is a chain that may go on
      for (size_t t = 0; t < instrs.size(); ++t) {
        if (done[t] || instrs[t].f32_op == nullptr || !is_ready(instrs[t])) continue;
        if (!open || pieces.back().links > kMostBefore) pieces.emplace_back();
        open = true;
        Piece& piece = pieces.back();
        start(piece, instrs[t]);
        for (size_t next = t;;) {
          const int acc = instrs[next].out;
          take(next), --left;
          for (size_t u = 0; u < instrs.size() && piece.links <= kMostBefore; ++u) {
            if (done[u] || !reduces_in_chain(instrs[u]) || instrs[u].in[0] != acc) continue;
            take(u), --left;
            piece.items.push_back({&instrs[u]}), ++piece.links;
          }
          if (piece.links > kMostBefore) break;
          for (next = 0; next < instrs.size(); ++next) {
            const Instr& i = instrs[next];
            if (!done[next] && i.f32_op != nullptr && reads(i, acc) && is_ready(i)) break;
          }
          if (next == instrs.size()) break;
          apply(piece, instrs[next], acc);
        }
      }
      if (left == before) throw InternalError("values of a tile program that wait for each other");
    }
    return pieces;
  }

  static bool is_scalar(const Instr& i, int k) { return (i.scalars >> k & 1) != 0; }

  static void start(Piece& piece, const Instr& i) {
    const int first = i.arity - (i.arity > 1 ? 2 : 1), k = i.arity > 1 && is_scalar(i, first) ? first + 1 : first;
    piece.items.push_back({.operand = i.in[k]}), ++piece.links;
    apply(piece, i, i.in[k]);
  }

  static void apply(Piece& piece, const Instr& i, int acc) {
    ++piece.ops;
    const bool selects = i.arity == 3;
    piece.links += selects ? 3 : 2;
    if (i.arity == 1) return piece.items.push_back({&i, LinkForm::alone});
    const int left = selects ? 1 : 0, right = left + 1, mask = selects ? i.in[0] : -1;
    if (i.in[left] == i.in[right] && !selects) return piece.items.push_back({&i, LinkForm::twice});
    if (i.in[left] == acc) {
      piece.items.push_back({&i, is_scalar(i, right) ? LinkForm::left_one : LinkForm::left, i.in[right], mask});
    } else {
      piece.items.push_back({&i, is_scalar(i, left) ? LinkForm::right_one : LinkForm::right, i.in[left], mask});
    }
  }

  // One op with a tile of its own is faster by it.
  static bool is_single(const Piece& piece) {
    return piece.ops == 1 && piece.items.size() == 2 && piece.items[1].instr->tile != nullptr;
  }

  void find_read(const std::vector<std::vector<Piece>>& pieces) {
    read_.assign(draft_.values.size(), 0);
    const auto reads_all = [&](const Instr& i) {
      for (int k = 0; k < i.arity; ++k) read_[static_cast<size_t>(i.in[k])] = 1;
    };
    for (const Instr& i : draft_.program.once.instrs) reads_all(i);
    for (const Program::Step& step : draft_.program.steps) {
      if (step.level == Level::element) continue;
      for (const Instr& i : step.instrs) reads_all(i);
    }
    for (const std::vector<Piece>& step : pieces) {
      for (const Piece& piece : step) {
        if (piece.items.empty()) reads_all(piece.instr);
        if (is_single(piece)) reads_all(*piece.items[1].instr);
        for (const Item& item : piece.items) {
          if (item.operand >= 0) read_[static_cast<size_t>(item.operand)] = 1;
          if (item.mask >= 0) read_[static_cast<size_t>(item.mask)] = 1;
        }
      }
    }
  }

  // What the views of a step see is asked for by its longest chain; what is seen of a row held whole, by the longest of
  // all. So are the lines of results, which otherwise are waited for when they are written.
  void choose_fetches(std::vector<std::vector<Piece>>& pieces) {
    const auto longest = [&](size_t begin, size_t end) {
      Piece* found = nullptr;
      for (size_t i = begin; i < end; ++i) {
        for (Piece& piece : pieces[i]) {
          if (piece.ops == 0 || is_single(piece)) continue;
          if (found == nullptr || piece.ops > found->ops) found = &piece;
        }
      }
      return found;
    };
    for (size_t i = 0; i < pieces.size(); ++i) {
      Program::Step& step = draft_.program.steps[i];
      Piece* const piece = draft_.shape.whole ? longest(0, pieces.size()) : longest(i, i + 1);
      step.fetched = piece != nullptr;
      for (const Instr& view : step.views) {
        const bool moves = view.level == Level::element && !view.columns;
        if (piece != nullptr && moves && piece->fetches.size() < kMostFetches) {
          piece->fetches.emplace_back(view.out, view.size);
        }
      }
      if (piece == nullptr || &step != draft_.program.last_of_elements()) continue;
      for (const Store& s : draft_.program.stores) {
        const bool in_cache = s.level == Level::element && s.alone && !s.past_cache;
        if (in_cache && piece->fetches.size() < kMostFetches) piece->fetches.emplace_back(s.value, s.size);
      }
    }
  }

  std::vector<Instr> instrs_of(const std::vector<Piece>& pieces) {
    std::vector<Instr> instrs;
    for (const Piece& piece : pieces) {
      instrs.push_back(piece.items.empty() ? piece.instr : is_single(piece) ? *piece.items[1].instr : chain(piece));
    }
    return instrs;
  }

  Instr chain(const Piece& piece) {
    std::vector<ChainLink>& links = draft_.program.links;
    Instr chain = {.kind = Kind::chain, .first_link = static_cast<int>(links.size())};
    for (const auto& [value, size] : piece.fetches) {
      links.push_back(
          {.kind = ChainLink::Kind::fetch, .fn = find_move_link(LinkForm::fetch), .value = value, .each = size});
    }
    for (const Item& item : piece.items) {
      const bool row = item.operand >= 0 && draft_.value(item.operand).level == Level::row;
      const size_t each = row && draft_.shape.group > 1 ? 1 : 0;
      chain.by_row = chain.by_row || each == 1;
      if (item.instr == nullptr) {
        links.push_back({.fn = find_move_link(LinkForm::load), .value = item.operand});
        continue;
      }
      if (item.instr->kind == Kind::reduce) {
        const int partial = item.instr->partial;
        links.push_back({.kind = ChainLink::Kind::reduce,
                         .fn = find_reduce_link(draft_.program.reduces[static_cast<size_t>(partial)].kind),
                         .value = item.instr->out,
                         .partial = partial});
        chain.reduces = true;
        continue;
      }
      const bool one = item.form == LinkForm::left_one || item.form == LinkForm::right_one;
      links.push_back({.kind = one ? ChainLink::Kind::one : ChainLink::Kind::read,
                       .fn = find_op_link(*item.instr->f32_op, item.form),
                       .value = item.operand,
                       .each = each});
      if (item.mask >= 0) links.push_back({.kind = ChainLink::Kind::mask, .value = item.mask});
      const int out = item.instr->out;
      int store = -1;
      for (size_t i = 0; i < draft_.program.stores.size(); ++i) {
        if (draft_.program.stores[i].value == out) store = static_cast<int>(i);
      }
      if (read_[static_cast<size_t>(out)] == 0 && store < 0) continue;
      const bool straight = store >= 0 && draft_.program.stores[static_cast<size_t>(store)].straight;
      links.push_back({.kind = ChainLink::Kind::write,
                       .fn = find_move_link(LinkForm::store),
                       .value = out,
                       .store = straight ? store : -1});
    }
    chain.links = static_cast<int>(links.size()) - chain.first_link;
    return chain;
  }

  static constexpr size_t kMostFetches = 16;
  // With so many there is room for an op of three, and the load that it starts with.
  static constexpr size_t kMostBefore = kMostLinks - kMostFetches - 4;

  Draft& draft_;
  std::vector<bool> pending_;  // by value: of an instruction of the step that is not yet in order
  std::vector<char> read_;     // by value: an instruction reads it from memory
};

}  // namespace

bool is_chained(const ir::OpDef& def) {
  return find_op_link(def, LinkForm::alone) != nullptr || find_op_link(def, LinkForm::left) != nullptr;
}

void form_chains(Draft& draft) { Chainer(draft).run(); }

}  // namespace aicf::backend::cpu
