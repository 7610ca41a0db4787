// Running a tile program. Allocates nothing.
#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/rng_bits.h"
#include "backend/cpu/tile_program.h"

namespace aicf::backend::cpu {
namespace {

// Calls f with a number of that size of an element, for moving bits.
template <class F>
void with_bits(size_t size, F f) {
  switch (size) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// n > 0.
template <class T>
void fill(T value, int64_t n, T* out) {
  constexpr int64_t kEach = 16 / sizeof(T);
  if (n < kEach) {
    std::fill_n(out, n, value);
    return;
  }
  T some[kEach];
  for (T& x : some) x = value;
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(some));
  for (int64_t i = 0; i + kEach <= n; i += kEach) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), all);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + n - kEach), all);
}

// Past the cache.
void stream(const char* from, char* to, size_t bytes) {
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % 16);
  std::memcpy(to, from, head);
  size_t i = head;
  for (; i + 16 <= bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
  std::memcpy(to + i, from + i, bytes - i);
}

template <class T>
void numbers(const Walk& walk, int64_t first, int64_t n, T* out) {
  walk.pieces(first, n, [&](int64_t position, int64_t value, int64_t step, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[position + i] = static_cast<T>(value + i * step);
  });
}

template <class Round>
void half_numbers(const Walk& walk, int64_t first, int64_t n, uint16_t* out, Round round) {
  walk.pieces(first, n, [&](int64_t position, int64_t value, int64_t step, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[position + i] = round(static_cast<float>(value + i * step));
  });
}

}  // namespace

TileRun::TileRun(const Program& program, const KernelArgs& args) : p_(program), args_(args) {
  at_ = reinterpret_cast<const void**>(scratch_);
  for (size_t v = 0; v < p_.place.size(); ++v) at_[v] = p_.place[v] == SIZE_MAX ? nullptr : scratch_ + p_.place[v];
  modes_ = reinterpret_cast<Mode*>(at_ + p_.place.size());
  for (size_t i = 0; i < p_.stores.size(); ++i) {
    modes_[i] = mode_of(p_.stores[i]);
    past_cache_ = past_cache_ || modes_[i] == Mode::past_cache;
  }
  run(p_.once);
  if (p_.shared.instrs.empty()) return;
  start_group(0, std::min(p_.group, p_.rows));
  start_tile(0, p_.length);
  for (const Instr& instr : p_.shared.instrs) run(instr);
}

TileRun::~TileRun() {
  if (past_cache_) _mm_sfence();
}

TileRun::Mode TileRun::mode_of(const Store& store) const {
  const void* const to = args_.buffers[store.result];
  if (store.level != Level::element) return Mode::copied;
  const bool replaces =
      std::any_of(args_.buffers, args_.buffers + store.operands, [&](const void* operand) { return operand == to; });
  if (store.past_cache && !replaces) return Mode::past_cache;
  for (int buffer : store.read_later) {
    if (args_.buffers[buffer] == to) return Mode::copied;
  }
  return store.alone ? Mode::in_place : Mode::copied;
}

void TileRun::units(int64_t begin, int64_t end) {
  if (p_.in_bands()) return rows(begin * p_.band, end * p_.band);
  const int64_t tiles = p_.tiles();
  if (tiles == 1) return rows(begin * p_.group, std::min(end * p_.group, p_.rows));
  while (begin < end) {
    const int64_t row = begin / tiles, tile = begin % tiles, last = std::min(tiles, tile + end - begin);
    band(row, row + 1, tile * p_.tile, std::min(last * p_.tile, p_.length) - tile * p_.tile);
    begin += last - tile;
  }
}

void TileRun::rows(int64_t begin, int64_t end) {
  if (p_.in_bands()) {
    for (int64_t row = begin; row < end;) {
      const int64_t next = std::min(end, (row / p_.band + 1) * p_.band);
      tiles_of_band(row, next);
      row = next;
    }
    return;
  }
  for (int64_t row = begin; row < end; row += p_.group) {
    band_row_ = row % p_.band;
    band_fill_ = band_row_ == 0 || row == begin ? p_.band - band_row_ : 0;
    group(row, std::min(p_.group, end - row));
  }
}

// Tile by tile of all rows.
void TileRun::tiles_of_band(int64_t begin, int64_t end) {
  for (int64_t from = 0; from < p_.length; from += p_.tile) {
    for (int64_t row = begin; row < end; ++row) {
      band_row_ = row - begin;
      band_fill_ = row == begin ? end - begin : 0;
      start_group(row, 1);
      run(p_.steps[0]);
      start_tile(from, std::min(p_.tile, p_.length - from));
      ahead_ = p_.length;
      run(p_.steps[1]);
      store(Level::element);
      if (from + n_ < p_.length) continue;
      run(p_.steps[2]);
      store(Level::row);
    }
  }
}

void TileRun::group(int64_t row, int64_t rows) {
  start_group(row, rows);
  for (const Program::Step& step : p_.steps) {
    if (step.level == Level::row) {
      run(step);
      continue;
    }
    const bool last = &step == p_.last_of_elements();
    const int64_t tile = p_.group > 1 ? p_.length : p_.tile;
    for (int64_t from = 0; from < p_.length; from += tile) {
      start_tile(from, std::min(tile, p_.length - from));
      ahead_ = std::min(n_ * rows_, p_.farthest);
      run(step);
      if (last) store(Level::element);
    }
  }
  store(Level::row);
}

void TileRun::band(int64_t begin, int64_t end, int64_t from, int64_t n) {
  for (int64_t row = begin; row < end; ++row) {
    start_group(row, 1);
    run(p_.steps[0]);
    for (int64_t at = from; at < from + n; at += p_.tile) {
      start_tile(at, std::min(p_.tile, from + n - at));
      ahead_ = n > p_.tile || end - begin == 1 ? std::min(n_, p_.farthest) : p_.length;
      run(p_.steps[1]);
      store(Level::element);
    }
  }
}

void TileRun::start_group(int64_t row, int64_t rows) {
  row_ = row, rows_ = rows;
  from_ = n_ = 0;
}

void TileRun::start_tile(int64_t from, int64_t n) {
  from_ = from, n_ = n;
  straight_ = 0;
  for (size_t i = 0; i < p_.stores.size(); ++i) {
    const Store& s = p_.stores[i];
    if (modes_[i] == Mode::copied || (modes_[i] == Mode::past_cache && !s.straight)) continue;
    char* const to = static_cast<char*>(args_.buffers[s.result]) + static_cast<size_t>(first(Level::element)) * s.size;
    constexpr uintptr_t kLine = 64;
    const bool aligned = reinterpret_cast<uintptr_t>(to) % kLine == 0;
    if (modes_[i] == Mode::past_cache && aligned) straight_ |= uint64_t{1} << i;
    at_[s.value] = modes_[i] == Mode::past_cache && !aligned ? own(s.value) : to;
  }
}

void TileRun::store(Level level) {
  for (size_t i = 0; i < p_.stores.size(); ++i) {
    const Store& s = p_.stores[i];
    if (s.level != level || modes_[i] == Mode::in_place || (i < 64 && (straight_ >> i & 1) != 0)) continue;
    char* const to = static_cast<char*>(args_.buffers[s.result]) + static_cast<size_t>(first(level)) * s.size;
    const size_t bytes = static_cast<size_t>(count(level)) * s.size;
    if (modes_[i] == Mode::past_cache) {
      stream(static_cast<const char*>(at_[s.value]), to, bytes);
    } else {
      std::memcpy(to, at_[s.value], bytes);
    }
  }
}

void TileRun::run(const Program::Step& step) {
  for (const Instr& instr : step.views) view(instr);
  // With less to compute the loads themselves are as fast as memory.
  constexpr size_t kFewInstrs = 4;
  const bool more = step.level == Level::element && 2 * n_ * rows_ > p_.tile && step.instrs.size() >= kFewInstrs;
  for (size_t i = 0; i < step.instrs.size(); ++i) {
    run(step.instrs[i]);
    if (more) fetch(step, static_cast<int64_t>(i));
  }
}

// After each instruction a share of the lines that the next tile reads is asked for, so that they come while there is
// something to compute.
void TileRun::fetch(const Program::Step& step, int64_t instr) {
  constexpr int64_t kLine = 64;
  for (const Instr& view : step.views) {
    const int64_t bytes = n_ * rows_ * view.size, begin = instr * view.fetch, end = std::min(begin + view.fetch, bytes);
    const char* const next = static_cast<const char*>(at_[view.out]) + ahead_ * view.size;
    for (int64_t i = begin; i < end; i += kLine) _mm_prefetch(next + i, _MM_HINT_T0);
  }
}

void TileRun::run(const Instr& instr) {
  switch (instr.kind) {
    case Instr::Kind::tile: {
      const void* const in[3] = {at_[instr.in[0]], at_[instr.in[1]], at_[instr.in[2]]};
      instr.tile(in, const_cast<void*>(at_[instr.out]), static_cast<size_t>(count(instr.level)));
      return;
    }
    case Instr::Kind::chain:
      return chain(instr);
    case Instr::Kind::constant:
      at_[instr.out] = instr.data;
      return;
    case Instr::Kind::view:
      return view(instr);
    case Instr::Kind::load:
      return load(instr);
    case Instr::Kind::pick:
      return pick(instr);
    case Instr::Kind::index:
      return number(instr);
    case Instr::Kind::bits:
      return draw(instr);
    case Instr::Kind::repeat:
      return repeat(instr);
    case Instr::Kind::reduce: {
      const Partial& r = p_.reduces[static_cast<size_t>(instr.partial)];
      r.tree->rows(r.kind, at_[instr.in[0]], static_cast<size_t>(rows_), static_cast<size_t>(p_.length),
                   own(instr.out));
      return;
    }
    case Instr::Kind::accumulate:
      return accumulate(instr);
    case Instr::Kind::combine:
      return combine(instr);
    case Instr::Kind::column:
      return column(instr);
  }
}

template <class T>
void transpose(const T* x, int64_t across, int64_t rows, int64_t columns, T* out, int64_t pitch) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) out[r * pitch + c] = x[c * across + r];
  }
}

// Four by four; each line of x is read at once.
template <>
void transpose(const uint32_t* x, int64_t across, int64_t rows, int64_t columns, uint32_t* out, int64_t pitch) {
  const auto from = [](const uint32_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); };
  const auto to = [](uint32_t* p, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); };
  const int64_t by_four = rows / 4 * 4;
  int64_t c = 0;
  for (; c + 4 <= columns; c += 4) {
    const uint32_t* const p = x + c * across;
    for (int64_t r = 0; r < by_four; r += 4) {
      const __m128i a = from(p + r), b = from(p + across + r), e = from(p + 2 * across + r),
                    f = from(p + 3 * across + r);
      const __m128i ab = _mm_unpacklo_epi32(a, b), ef = _mm_unpacklo_epi32(e, f);
      const __m128i high_ab = _mm_unpackhi_epi32(a, b), high_ef = _mm_unpackhi_epi32(e, f);
      uint32_t* const q = out + r * pitch + c;
      to(q, _mm_unpacklo_epi64(ab, ef));
      to(q + pitch, _mm_unpackhi_epi64(ab, ef));
      to(q + 2 * pitch, _mm_unpacklo_epi64(high_ab, high_ef));
      to(q + 3 * pitch, _mm_unpackhi_epi64(high_ab, high_ef));
    }
    for (int64_t r = by_four; r < rows; ++r) {
      for (int64_t j = 0; j < 4; ++j) out[r * pitch + c + j] = p[j * across + r];
    }
  }
  for (; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) out[r * pitch + c] = x[c * across + r];
  }
}

// Loads the rows of a band from this one on, if they are not there yet.
void TileRun::load_across(const Instr& instr) {
  with_bits(instr.size, [&](auto bits) {
    using T = decltype(bits);
    const int64_t pitch = band_pitch(p_.tile);
    T* const row = static_cast<T*>(own(instr.out)) + band_row_ * pitch;
    at_[instr.out] = row;
    if (band_fill_ == 0) return;
    const T* x = reinterpret_cast<const T*>(instr.base(args_));
    p_.walks[static_cast<size_t>(instr.walk)].pieces(first(instr.level), 1,
                                                     [&](int64_t, int64_t at, int64_t, int64_t) { x += at; });
    transpose(x, instr.across, band_fill_, n_, row, pitch);
  });
}

void TileRun::load(const Instr& instr) {
  if (instr.across != 0) return load_across(instr);
  const char* const base = instr.base(args_);
  const int64_t n = count(instr.level);
  with_bits(instr.size, [&](auto bits) {
    using T = decltype(bits);
    const T* const x = reinterpret_cast<const T*>(base);
    p_.walks[static_cast<size_t>(instr.walk)].blocks(
        first(instr.level), n,
        [&](int64_t position, int64_t at, int64_t step, int64_t run, int64_t rows, int64_t pitch) {
          if (run == n && (n == 1 || step == 1)) {
            at_[instr.out] = x + at;
            return;
          }
          T* out = static_cast<T*>(own(instr.out));
          if (position == 0) at_[instr.out] = out;
          out += position;
          if (step == 1) {
            constexpr auto kSize = static_cast<int64_t>(sizeof(T));
            copy_rows_(reinterpret_cast<const char*>(x + at), pitch * kSize, static_cast<size_t>(rows),
                       static_cast<size_t>(run * kSize), reinterpret_cast<char*>(out));
            return;
          }
          for (int64_t r = 0; r < rows; ++r, at += pitch, out += run) {
            if (step == 0) {
              fill(x[at], run, out);
            } else {
              for (int64_t i = 0; i < run; ++i) out[i] = x[at + i * step];
            }
          }
        });
  });
}

void TileRun::pick(const Instr& instr) {
  const char* const base = instr.at.in(args_);
  const int64_t n = count(instr.level);
  const void* const index = at_[instr.in[0]];
  const int64_t each = instr.one ? 0 : 1;
  const auto chosen = [&](int64_t i) -> int64_t {
    return instr.wide_index ? static_cast<const int64_t*>(index)[i * each]
                            : static_cast<const int32_t*>(index)[i * each];
  };
  with_bits(instr.size, [&](auto bits) {
    using T = decltype(bits);
    const T* const x = reinterpret_cast<const T*>(base);
    T* const out = static_cast<T*>(own(instr.out));
    at_[instr.out] = out;
    p_.walks[static_cast<size_t>(instr.walk)].pieces(
        first(instr.level), n, [&](int64_t position, int64_t at, int64_t step, int64_t run) {
          if (instr.one) {
            const int64_t k = chosen(0);
            const bool inside = k >= 0 && k < instr.extent;
            if (inside && run == n && step == 1) {
              at_[instr.out] = x + at + k * instr.pick;
              return;
            }
            for (int64_t i = 0; i < run; ++i) out[position + i] = inside ? x[at + i * step + k * instr.pick] : T{0};
            return;
          }
          for (int64_t i = 0; i < run; ++i) {
            const int64_t k = chosen(position + i);
            out[position + i] = k >= 0 && k < instr.extent ? x[at + i * step + k * instr.pick] : T{0};
          }
        });
  });
}

void TileRun::number(const Instr& instr) {
  const Walk& walk = p_.walks[static_cast<size_t>(instr.walk)];
  const int64_t at = first(instr.level), n = count(instr.level);
  void* const out = const_cast<void*>(at_[instr.out]);
  switch (instr.dtype) {
    case DType::f64:
      return numbers(walk, at, n, static_cast<double*>(out));
    case DType::f32:
      return numbers(walk, at, n, static_cast<float*>(out));
    case DType::bf16:
      return half_numbers(walk, at, n, static_cast<uint16_t*>(out), f32_to_bf16);
    case DType::f16:
      return half_numbers(walk, at, n, static_cast<uint16_t*>(out), f32_to_f16);
    case DType::i64:
      return numbers(walk, at, n, static_cast<int64_t*>(out));
    case DType::i32:
      return numbers(walk, at, n, static_cast<int32_t*>(out));
    case DType::u8:
    case DType::boolean:
      return numbers(walk, at, n, static_cast<uint8_t*>(out));
  }
}

void TileRun::draw(const Instr& instr) {
  static const RandomBitsFn fill = find_random_bits();
  uint64_t seed = 0, offset = 0;
  std::memcpy(&seed, at_[instr.in[0]], sizeof(seed));
  std::memcpy(&offset, at_[instr.in[1]], sizeof(offset));
  const base::PhiloxStream stream{seed, offset, instr.ordinal};
  int32_t* const out = static_cast<int32_t*>(const_cast<void*>(at_[instr.out]));
  p_.walks[static_cast<size_t>(instr.walk)].pieces(first(instr.level), count(instr.level),
                                                   [&](int64_t position, int64_t at, int64_t step, int64_t run) {
                                                     if (step == 1) return fill(stream, at, run, out + position);
                                                     for (int64_t i = 0; i < run; ++i) {
                                                       fill(stream, at + i * step, 1, out + position + i);
                                                     }
                                                   });
}

void TileRun::repeat(const Instr& instr) {
  // From the group's rows, or from one value to a run of them.
  const int64_t to = count(instr.level), from = instr.one ? 1 : rows_, each = to / from;
  with_bits(instr.size, [&](auto bits) {
    using T = decltype(bits);
    const T* const x = static_cast<const T*>(at_[instr.in[0]]);
    T* out = static_cast<T*>(const_cast<void*>(at_[instr.out]));
    for (int64_t r = 0; r < from; ++r, out += each) fill(x[r], each, out);
  });
}

void TileRun::accumulate(const Instr& instr) {
  const Partial& r = p_.reduces[static_cast<size_t>(instr.partial)];
  char* const lanes = scratch_ + r.lanes;
  const char* const x = static_cast<const char*>(at_[instr.in[0]]);
  const auto n = static_cast<size_t>(n_), from = static_cast<size_t>(from_), rest = n % kRowLanes;
  if (from % kRowBlock == 0) r.tree->identity(r.kind, lanes, kRowLanes);
  r.tree->column_rows(r.kind, lanes, x, n / kRowLanes, kRowLanes, kRowLanes);
  if (rest != 0) r.tree->column_rows(r.kind, lanes, x + (n - rest) * r.size, 1, kRowLanes, rest);
  const size_t end = from + n;
  if (end % kRowBlock != 0 && end != static_cast<size_t>(p_.length)) return;
  const size_t block = static_cast<size_t>(block_row_ * p_.blocks()) + from / kRowBlock;
  r.tree->rows(r.kind, lanes, 1, kRowLanes, r.at.in(args_) + block * r.size);
}

void TileRun::combine(const Instr& instr) {
  const Partial& r = p_.reduces[static_cast<size_t>(instr.partial)];
  const auto blocks = static_cast<size_t>(p_.blocks());
  r.tree->combine_blocks(r.kind, r.at.in(args_) + static_cast<size_t>(block_row_) * blocks * r.size, blocks,
                         own(instr.out));
}

void TileRun::column(const Instr& instr) {
  const Partial& r = p_.columns[static_cast<size_t>(instr.partial)];
  char* const acc = r.at.in(args_) + static_cast<size_t>(chunk_ * p_.length + from_) * r.size;
  r.tree->column_rows(r.kind, acc, at_[instr.in[0]], static_cast<size_t>(rows_), static_cast<size_t>(n_),
                      static_cast<size_t>(n_));
}

void TileRun::start_chunk(int64_t from, int64_t n) {
  for (const Partial& r : p_.columns) {
    r.tree->identity(r.kind, r.at.in(args_) + static_cast<size_t>(chunk_ * p_.length + from) * r.size,
                     static_cast<size_t>(n));
  }
}

}  // namespace aicf::backend::cpu
