// Running the chains of a tile program.
#include <algorithm>
#include <cstring>
#include <functional>

#include "backend/cpu/tile_program.h"

namespace aicf::backend::cpu {

inline void TileRun::bind(const ChainLink& from, Link& link) const {
  link.fn = from.fn;
  link.each = from.each;
  if (from.kind == ChainLink::Kind::reduce) {
    link.at =
        reinterpret_cast<float*>(const_cast<char*>(scratch_) + p_.reduces[static_cast<size_t>(from.partial)].lanes);
    return;
  }
  if (from.value < 0) return;
  link.at = static_cast<float*>(const_cast<void*>(at_[from.value]));
  if (from.kind == ChainLink::Kind::fetch) {
    link.at = reinterpret_cast<float*>(reinterpret_cast<char*>(link.at) + static_cast<size_t>(ahead_) * from.each);
  }
  if (straight_ != 0 && from.store >= 0 && (straight_ >> from.store & 1) != 0)
    link.fn = find_move_link(LinkForm::stream);
}

void TileRun::chain(const Instr& instr) {
  Link links[kMostLinks + 1];
  for (int k = 0; k < instr.links; ++k) bind(p_.links[static_cast<size_t>(instr.first_link + k)], links[k]);
  const auto count = static_cast<size_t>(instr.links);
  if (instr.reduces) return chain_of_row(instr, links);
  if (instr.by_row) {
    const auto length = static_cast<size_t>(p_.length);
    for (size_t row = 0; row < static_cast<size_t>(rows_); ++row) {
      chains_.run(links, count, row * length, (row + 1) * length, row);
    }
    return;
  }
  const size_t n = static_cast<size_t>(n_ * rows_), whole = n / chains_.block * chains_.block;
  chains_.run(links, count, 0, whole, 0);
  rest_of_chain(instr, links, whole, n - whole);
}

// Block by block of the reduction tree, whose results then meet.
void TileRun::chain_of_row(const Instr& instr, Link* links) {
  const auto each_reduced = [&](auto f) {
    for (int k = 0; k < instr.links; ++k) {
      const ChainLink& link = p_.links[static_cast<size_t>(instr.first_link + k)];
      if (link.partial >= 0) f(*p_.reduces[static_cast<size_t>(link.partial)].f32_tree, links[k].at, link.value);
    }
  };
  const auto n = static_cast<size_t>(n_);
  size_t blocks = 0;
  for (size_t from = 0; from < n; from += kRowBlock, ++blocks) {
    const size_t end = std::min(n, from + kRowBlock), rest = (end - from) % chains_.block;
    each_reduced([](const ReduceTree<float>& tree, float* lanes, int) {
      for (size_t k = 0; k < kRowLanes; ++k) lanes[k] = tree.identity;
    });
    chains_.run(links, static_cast<size_t>(instr.links), from, end - rest, 0);
    rest_of_chain(instr, links, end - rest, rest);
    each_reduced([&](const ReduceTree<float>& tree, float* lanes, int) {
      lanes[kRowLanes + blocks] = tree.row_block(lanes, kRowLanes);
    });
  }
  each_reduced([&](const ReduceTree<float>& tree, float* lanes, int out) {
    *static_cast<float*>(own(out)) = combine_blocks(tree, lanes + kRowLanes, blocks);
  });
}

// Less than a block, through padded copies of what is not in the scratch, which has room for a whole one.
void TileRun::rest_of_chain(const Instr& instr, const Link* links, size_t from, size_t n) {
  if (n == 0) return;
  const ChainLink* const of = &p_.links[static_cast<size_t>(instr.first_link)];
  alignas(64) float pads[kMostLinks][kRowLanes];
  Link padded[kMostLinks + 1];
  const auto in_scratch = [&](const Link& link) {
    return std::less_equal<const void*>()(scratch_, link.at) &&
           std::less<const void*>()(link.at, scratch_ + kScratchBytes);
  };
  for (int k = 0; k < instr.links; ++k) {
    padded[k] = links[k];
    const bool mask = of[k].kind == ChainLink::Kind::mask;
    const size_t size = mask ? sizeof(uint8_t) : sizeof(float);
    if (of[k].value < 0 || of[k].kind == ChainLink::Kind::one || of[k].kind == ChainLink::Kind::fetch) continue;
    if (of[k].kind == ChainLink::Kind::write) padded[k].fn = of[k].fn;
    if (of[k].kind == ChainLink::Kind::reduce) {
      padded[k].fn = find_move_link(LinkForm::store);
      padded[k].at = pads[k];
      continue;
    }
    char* const at = reinterpret_cast<char*>(links[k].at) + from * size;
    if (in_scratch(links[k])) {
      padded[k].at = reinterpret_cast<float*>(at);
    } else {
      const int first =
          static_cast<int>(std::find_if(of, of + k,
                                        [&](const ChainLink& other) {
                                          return other.value == of[k].value && other.kind != ChainLink::Kind::fetch;
                                        }) -
                           of);
      padded[k].at = pads[first];
      if (first != k) continue;
      std::fill_n(pads[k], kRowLanes, 0.0f);
      std::memcpy(pads[k], at, n * size);
    }
  }
  chains_.run(padded, static_cast<size_t>(instr.links), 0, chains_.block, 0);
  for (int k = 0; k < instr.links; ++k) {
    if (of[k].kind == ChainLink::Kind::reduce) {
      const Partial& r = p_.reduces[static_cast<size_t>(of[k].partial)];
      // Of a row: its element i is in lane i modulo kRowLanes.
      r.tree->column_rows(r.kind, links[k].at + from % kRowLanes, pads[k], 1, kRowLanes, n);
    } else if (of[k].kind == ChainLink::Kind::write && !in_scratch(links[k])) {
      std::memcpy(links[k].at + from, padded[k].at, n * sizeof(float));
    }
  }
}

}  // namespace aicf::backend::cpu
