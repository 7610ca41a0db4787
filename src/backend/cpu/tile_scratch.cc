// Where the values of a tile program lie in the scratch, and which results may be computed where they go.
#include <algorithm>
#include <map>

#include "backend/cpu/tile_draft.h"

namespace aicf::backend::cpu {
namespace {

using Kind = Instr::Kind;

constexpr size_t kAlignment = 64;
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// An instruction, or a link of a chain: what it reads and writes.
struct Event {
  const Instr* instr = nullptr;
  std::array<int, 3> in = {-1, -1, -1};
  int out = -1;
};

// Those of the steps, or of all of the program with views, in order.
std::vector<Event> events_of(const Draft& draft, bool all) {
  std::vector<Event> events;
  const auto add = [&](const Instr& i) {
    if (i.kind != Kind::chain) {
      Event& event = events.emplace_back(Event{.instr = &i, .out = i.out});
      std::copy_n(i.in, i.arity, event.in.begin());
      return;
    }
    const ChainLink* const links = draft.program.links.data() + i.first_link;
    for (int k = 0; k < i.links; ++k) {
      const ChainLink& link = links[k];
      if (link.kind == ChainLink::Kind::fetch || link.kind == ChainLink::Kind::mask) continue;
      const bool writes = link.kind == ChainLink::Kind::write || link.kind == ChainLink::Kind::reduce;
      events.push_back({.instr = &i, .in = {writes ? -1 : link.value, -1, -1}, .out = writes ? link.value : -1});
    }
    // Block by block a mask lies behind what is written into its slot: it is read until the chain ends.
    for (int k = 0; k < i.links; ++k) {
      if (links[k].kind == ChainLink::Kind::mask) events.push_back({.instr = &i, .in = {links[k].value, -1, -1}});
    }
  };
  if (all) {
    draft.each_instr(add);
  } else {
    for (const Program::Step& step : draft.program.steps) {
      for (const Instr& i : step.instrs) add(i);
    }
  }
  return events;
}

void find_reads_after_values(Draft& draft) {
  std::map<int, int> buffer_of;  // values that are in an operand's memory
  draft.each_instr([&](const Instr& i) {
    if (in_memory(i.kind)) buffer_of[i.out] = i.at.buffer;
  });
  const std::vector<Event> events = events_of(draft, true);
  for (Store& s : draft.program.stores) {
    bool after = false;
    for (const Event& e : events) {
      const auto reads = [&](int buffer) {
        if (after && buffer >= 0) s.read_later.push_back(buffer);
      };
      if (in_memory(e.instr->kind)) reads(e.instr->at.buffer);
      for (int v : e.in) {
        if (const auto it = buffer_of.find(v); it != buffer_of.end()) reads(it->second);
      }
      after = after || e.out == s.value;
    }
    std::sort(s.read_later.begin(), s.read_later.end());
    s.read_later.erase(std::unique(s.read_later.begin(), s.read_later.end()), s.read_later.end());
  }
}

// Elements of a tile, with room for a chain's whole blocks.
size_t tile_room(const Draft& draft) {
  return (static_cast<size_t>(draft.shape.tile) + kRowLanes - 1) / kRowLanes * kRowLanes;
}

// Values of elements share slots where their lives do not overlap. Returns the bytes of the slots.
size_t share_slots(Draft& draft, size_t base) {
  Program& program = draft.program;
  const std::vector<Event> order = events_of(draft, false);
  std::vector<size_t> last_use(draft.values.size(), 0);
  for (size_t t = 0; t < order.size(); ++t) {
    for (int v : order[t].in) {
      if (v >= 0) last_use[static_cast<size_t>(v)] = t;
    }
  }
  for (const Store& s : program.stores) last_use[static_cast<size_t>(s.value)] = order.size();
  const auto in_slot = [&](int v) {
    return v >= 0 && draft.value(v).level == Level::element && draft.value(v).in_scratch && !draft.value(v).kept &&
           !draft.value(v).banded;
  };
  size_t widest = 1;
  for (size_t v = 0; v < draft.values.size(); ++v) {
    if (in_slot(static_cast<int>(v))) widest = std::max(widest, draft.values[v].size);
  }
  const size_t slot_bytes = aligned(widest * tile_room(draft));
  std::vector<size_t> slot_of(draft.values.size(), SIZE_MAX), free;
  size_t slots = 0;
  for (size_t t = 0; t < order.size(); ++t) {
    const Event& e = order[t];
    std::vector<size_t> dying;
    for (int x : e.in) {
      if (!in_slot(x) || last_use[static_cast<size_t>(x)] != t) continue;
      const size_t slot = slot_of[static_cast<size_t>(x)];
      if (std::find(dying.begin(), dying.end(), slot) == dying.end()) dying.push_back(slot);
    }
    if (in_slot(e.out)) {
      // A tile's result may replace an operand of its size.
      const auto same = std::find_if(dying.begin(), dying.end(), [&](size_t slot) {
        return std::any_of(e.in.begin(), e.in.end(), [&](int x) {
          return in_slot(x) && slot_of[static_cast<size_t>(x)] == slot && e.instr->kind == Kind::tile &&
                 draft.value(x).size == draft.value(e.out).size;
        });
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
      slot_of[static_cast<size_t>(e.out)] = slot;
      program.place[static_cast<size_t>(e.out)] = base + slot * slot_bytes;
      if (last_use[static_cast<size_t>(e.out)] <= t) free.push_back(slot);
    }
    free.insert(free.end(), dying.begin(), dying.end());
  }
  return slots * slot_bytes;
}

}  // namespace

void allocate(Draft& draft) {
  find_reads_after_values(draft);
  Program& program = draft.program;
  const size_t values = draft.values.size();
  size_t bytes = aligned(values * sizeof(void*) + program.stores.size());
  program.place.assign(values, SIZE_MAX);
  for (size_t v = 0; v < values; ++v) {
    const Draft::Value& value = draft.values[v];
    if (value.banded) {
      program.place[v] = bytes;
      bytes += aligned(value.size * static_cast<size_t>(draft.shape.band * band_pitch(draft.shape.tile)) +
                       kRowLanes * value.size);
      continue;
    }
    if ((value.level == Level::element && !value.kept) || !value.in_scratch) continue;
    program.place[v] = bytes;
    const size_t row = static_cast<size_t>(draft.shape.group);
    bytes += aligned(value.size * (value.kept ? tile_room(draft) : value.level == Level::row ? row : 1));
  }
  for (Partial& r : program.reduces) {
    r.lanes = bytes;
    const auto blocks = static_cast<size_t>(draft.shape.whole ? program.blocks() : 0);
    bytes += aligned((kRowLanes + blocks) * r.size);
  }
  program.slots_bytes = share_slots(draft, bytes);
  for (Program::Step& step : program.steps) {
    const size_t instrs = std::max<size_t>(step.instrs.size(), 1);
    for (Instr& view : step.views) {
      const size_t tile = view.size * static_cast<size_t>(draft.shape.tile);
      view.fetch = step.fetched || view.columns ? 0 : static_cast<int64_t>(aligned((tile + instrs - 1) / instrs));
    }
  }
  program.scratch_bytes = bytes + program.slots_bytes;
}

}  // namespace aicf::backend::cpu
