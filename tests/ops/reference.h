// The primitives again, written for plainness alone: doubles, one element at a time, by index arithmetic. It shares no
// code with the kernels, and works out the result's shape itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ops/kernel_run.h"

namespace aicf::test {

struct Array {
  std::vector<int64_t> dims;
  std::vector<double> data;

  Array() = default;
  explicit Array(std::vector<int64_t> d, double fill = 0) : dims(std::move(d)) { data.assign(count(dims), fill); }
  explicit Array(const Tensor& t) : dims(t.shape().begin(), t.shape().end()), data(t.to_doubles()) {}
  static size_t count(const std::vector<int64_t>& d) {
    return static_cast<size_t>(std::accumulate(d.begin(), d.end(), int64_t{1}, std::multiplies<>()));
  }
  int rank() const { return static_cast<int>(dims.size()); }
  double& at(const std::vector<int64_t>& index) {
    int64_t flat = 0;
    for (size_t i = 0; i < dims.size(); ++i) flat = flat * dims[i] + index[i];
    return data.at(static_cast<size_t>(flat));
  }
  // Calls fn(index) for every element in order.
  template <class Fn>
  void each(Fn fn) const {
    std::vector<int64_t> index(dims.size(), 0);
    for (size_t n = 0; n < data.size(); ++n) {
      fn(index);
      for (size_t i = dims.size(); i-- > 0;) {
        if (++index[i] < dims[i]) break;
        index[i] = 0;
      }
    }
  }
};

using Arrays = std::vector<Array>;
using Index = std::vector<int64_t>;
using ReferenceFn = std::function<Arrays(Arrays in, const ir::Attrs& attrs)>;

// The operand's element for an index of the broadcast result.
inline double broadcast_at(Array& x, const Index& index) {
  Index own(index.end() - x.rank(), index.end());
  for (int i = 0; i < x.rank(); ++i) own[i] = x.dims[i] == 1 ? 0 : own[i];
  return x.at(own);
}

template <class Fn>
ReferenceFn pointwise(Fn fn) {
  return [fn](Arrays in, const ir::Attrs&) -> Arrays {
    Index dims;
    for (const Array& x : in) {
      if (x.rank() > static_cast<int>(dims.size())) dims.insert(dims.begin(), x.rank() - dims.size(), 1);
      for (int i = 1; i <= x.rank(); ++i) {
        if (x.dims[x.rank() - i] != 1) dims[dims.size() - i] = x.dims[x.rank() - i];
      }
    }
    Array out(dims);
    out.each([&](const Index& i) {
      std::vector<double> v;
      for (Array& x : in) v.push_back(broadcast_at(x, i));
      if constexpr (std::is_invocable_v<Fn, double>)
        out.at(i) = fn(v[0]);
      else if constexpr (std::is_invocable_v<Fn, double, double>)
        out.at(i) = fn(v[0], v[1]);
      else
        out.at(i) = fn(v[0], v[1], v[2]);
    });
    return {out};
  };
}

inline double ieee_maximum(double a, double b) { return a != a || b != b ? NAN : std::max(a, b); }
inline double ieee_minimum(double a, double b) { return a != a || b != b ? NAN : std::min(a, b); }

inline bool listed(const Index& list, int64_t x) { return std::find(list.begin(), list.end(), x) != list.end(); }

// Folds every group of elements that the reduced axes join, in order.
inline ReferenceFn reduction(double first, std::function<double(double, double)> fold) {
  return [=](Arrays in, const ir::Attrs& attrs) -> Arrays {
    const Index axes = attrs.get_ints("axes");
    Index kept, result;
    for (int i = 0; i < in[0].rank(); ++i) {
      kept.push_back(listed(axes, i) ? 1 : in[0].dims[i]);
      if (!listed(axes, i) || attrs.get_bool("keepdims")) result.push_back(kept.back());
    }
    Array out(kept, first);
    in[0].each([&](Index i) {
      const double v = in[0].at(i);
      for (int64_t a : axes) i[a] = 0;
      out.at(i) = fold(out.at(i), v);
    });
    out.dims = result;
    return {out};
  };
}

inline Arrays argmax_reference(Arrays in, const ir::Attrs& attrs) {
  const auto axis = static_cast<size_t>(attrs.get_int("axis"));
  Index dims = in[0].dims;
  dims[axis] = 1;
  Array out(dims);
  out.each([&](const Index& i) {
    Index at = i, best = i;
    for (at[axis] = 1; at[axis] < in[0].dims[axis]; ++at[axis]) {
      const double v = in[0].at(at), b = in[0].at(best);
      if (v > b || (v != v && b == b)) best = at;  // the first NaN wins
    }
    out.at(i) = static_cast<double>(best[axis]);
  });
  if (!attrs.get_bool("keepdims")) out.dims.erase(out.dims.begin() + static_cast<int64_t>(axis));
  return {out};
}

inline Arrays transpose_reference(Arrays in, const ir::Attrs& attrs) {
  const Index perm = attrs.get_ints("perm");
  Index dims;
  for (int64_t axis : perm) dims.push_back(in[0].dims[axis]);
  Array out(dims);
  out.each([&](const Index& i) {
    Index from(perm.size());
    for (size_t k = 0; k < perm.size(); ++k) from[perm[k]] = i[k];
    out.at(i) = in[0].at(from);
  });
  return {out};
}

inline Arrays slice_reference(Arrays in, const ir::Attrs& attrs) {
  const Index start = attrs.get_ints("start"), limit = attrs.get_ints("limit");
  Index step = attrs.get_ints("step");
  if (step.empty()) step.assign(start.size(), 1);
  std::vector<Index> picked(start.size());
  Index dims;
  for (size_t a = 0; a < start.size(); ++a) {
    for (int64_t i = 0; i < in[0].dims[a]; ++i) {
      if (i >= start[a] && i < limit[a] && (i - start[a]) % step[a] == 0) picked[a].push_back(i);
    }
    dims.push_back(static_cast<int64_t>(picked[a].size()));
  }
  Array out(dims);
  out.each([&](const Index& i) {
    Index from;
    for (size_t a = 0; a < i.size(); ++a) from.push_back(picked[a][i[a]]);
    out.at(i) = in[0].at(from);
  });
  return {out};
}

inline Arrays concat_reference(Arrays in, const ir::Attrs& attrs) {
  const auto axis = static_cast<size_t>(attrs.get_int("axis"));
  Index dims = in[0].dims;
  dims[axis] = 0;
  for (const Array& part : in) dims[axis] += part.dims[axis];
  Array out(dims);
  int64_t offset = 0;
  for (Array& part : in) {
    part.each([&](Index i) {
      const double v = part.at(i);
      i[axis] += offset;
      out.at(i) = v;
    });
    offset += part.dims[axis];
  }
  return {out};
}

inline Arrays split_reference(Arrays in, const ir::Attrs& attrs) {
  const auto axis = static_cast<size_t>(attrs.get_int("axis"));
  Arrays out;
  int64_t offset = 0;
  for (int64_t size : attrs.get_ints("sizes")) {
    Index dims = in[0].dims;
    dims[axis] = size;
    Array piece(dims);
    piece.each([&](const Index& i) {
      Index from = i;
      from[axis] += offset;
      piece.at(i) = in[0].at(from);
    });
    out.push_back(piece);
    offset += size;
  }
  return out;
}

inline Arrays pad_reference(Arrays in, const ir::Attrs& attrs) {
  const Index low = attrs.get_ints("low"), high = attrs.get_ints("high");
  Index dims = in[0].dims;
  for (size_t a = 0; a < dims.size(); ++a) dims[a] += low[a] + high[a];
  Array out(dims, attrs.get_float("value"));
  in[0].each([&](Index i) {
    const double v = in[0].at(i);
    for (size_t a = 0; a < i.size(); ++a) i[a] += low[a];
    out.at(i) = v;
  });
  return {out};
}

// Index of x for an index of the picked elements; nullopt when the pick is out of range.
inline std::optional<Index> picked_index(const Array& x, Array& index, const Index& at, const ir::Attrs& attrs) {
  const int64_t axis = attrs.get_int("axis"), batch = attrs.get_int("batch_dims");
  const int64_t picks = index.rank() - batch;
  Index from_index(at.begin(), at.begin() + batch);
  from_index.insert(from_index.end(), at.begin() + axis, at.begin() + axis + picks);
  const double k = index.at(from_index);
  if (k < 0 || k >= static_cast<double>(x.dims[axis])) return std::nullopt;
  Index from(at.begin(), at.begin() + axis);
  from.push_back(static_cast<int64_t>(k));
  from.insert(from.end(), at.begin() + axis + picks, at.end());
  return from;
}

inline Arrays gather_reference(Arrays in, const ir::Attrs& attrs) {
  const int64_t axis = attrs.get_int("axis"), batch = attrs.get_int("batch_dims");
  Index dims(in[0].dims.begin(), in[0].dims.begin() + axis);
  dims.insert(dims.end(), in[1].dims.begin() + batch, in[1].dims.end());
  dims.insert(dims.end(), in[0].dims.begin() + axis + 1, in[0].dims.end());
  Array out(dims);
  out.each([&](const Index& i) {
    const auto from = picked_index(in[0], in[1], i, attrs);
    out.at(i) = from ? in[0].at(*from) : 0;
  });
  return {out};
}

inline Arrays scatter_add_reference(Arrays in, const ir::Attrs& attrs) {
  Array out = in[0];
  in[2].each([&](const Index& i) {
    const auto to = picked_index(out, in[1], i, attrs);
    if (to) out.at(*to) += in[2].at(i);
  });
  return {out};
}

inline double cast_value(double v, DType to) {
  unsigned char bits[8];
  if (!is_float(to) && to != boolean) v = std::trunc(v);
  set_element(to, bits, 0, v);
  return element_as_double(to, bits, 0);
}

// What a product's factor is rounded to: 11 significant bits for tf32.
inline double factor_value(double v, const std::string& compute) {
  DType dtype = f64;
  if (compute != "tf32") return parse_dtype(compute, dtype) ? cast_value(v, dtype) : v;
  if (v == 0 || !std::isfinite(v)) return v;
  int exponent = 0;
  const double mantissa = std::frexp(v, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 11)), exponent - 11);
}

inline Arrays matmul_reference(Arrays in, const ir::Attrs& attrs) {
  for (Array& x : in) {
    for (double& v : x.data) v = factor_value(v, attrs.get_string("compute"));
  }
  const auto swap_last = [](const Array& x) {
    Array y(x.dims);
    const size_t r = x.dims.size();
    std::swap(y.dims[r - 1], y.dims[r - 2]);
    Array from = x;
    y.each([&](const Index& i) {
      Index j = i;
      std::swap(j[r - 1], j[r - 2]);
      y.at(i) = from.at(j);
    });
    return y;
  };
  Array a = attrs.get_bool("ta") ? swap_last(in[0]) : in[0], b = attrs.get_bool("tb") ? swap_last(in[1]) : in[1];
  const int rank = std::max(a.rank(), b.rank());
  for (Array* x : {&a, &b}) x->dims.insert(x->dims.begin(), rank - x->rank(), 1);
  Index dims(static_cast<size_t>(rank));
  for (int i = 0; i < rank - 2; ++i) dims[i] = a.dims[i] == 1 ? b.dims[i] : a.dims[i];
  dims[rank - 2] = a.dims[rank - 2];
  dims[rank - 1] = b.dims[rank - 1];
  Array out(dims);
  out.each([&](const Index& i) {
    Index left = i, right = i;
    long double sum = 0;
    for (int64_t k = 0; k < a.dims[rank - 1]; ++k) {
      left[rank - 1] = right[rank - 2] = k;
      sum += static_cast<long double>(broadcast_at(a, left)) * broadcast_at(b, right);
    }
    out.at(i) = static_cast<double>(sum);
  });
  return {out};
}

inline Arrays in_range_reference(Arrays in, const ir::Attrs& attrs) {
  bool ok = true;
  for (double v : in[0].data) {
    const bool ignored = attrs.has("ignore") && v == static_cast<double>(attrs.get_int("ignore"));
    ok = ok && (ignored || (v >= 0 && v < static_cast<double>(attrs.get_int("extent"))));
  }
  return {Array({}, ok ? 1 : 0)};
}

// Philox 4x32-10 as its paper defines it, and the counter of base::PhiloxStream.
inline Arrays rng_bits_reference(Arrays in, const ir::Attrs& attrs) {
  const auto word = [](double v, int half) {
    return static_cast<uint64_t>(static_cast<int64_t>(v)) >> (32 * half) & 0xffffffffu;
  };
  Array out(attrs.get_ints("shape"));
  for (size_t e = 0; e < out.data.size(); ++e) {
    const auto ordinal = static_cast<uint64_t>(attrs.get_int("ordinal"));
    uint64_t k0 = word(in[0].data[0], 0), k1 = word(in[0].data[0], 1);
    uint64_t r0 = e / 4, l0 = (uint64_t{1} << 31) + ordinal * 2048;
    uint64_t r1 = word(in[1].data[0], 0), l1 = word(in[1].data[0], 1);
    for (int round = 0; round < 10; ++round) {
      const uint64_t product0 = r0 * 0xD2511F53u, product1 = r1 * 0xCD9E8D57u;
      r0 = product1 / 0x100000000u ^ l0 ^ k0;
      l0 = product1 % 0x100000000u;
      r1 = product0 / 0x100000000u ^ l1 ^ k1;
      l1 = product0 % 0x100000000u;
      k0 = (k0 + 0x9E3779B9u) % 0x100000000u;
      k1 = (k1 + 0xBB67AE85u) % 0x100000000u;
    }
    const uint64_t words[] = {r0, l0, r1, l1};
    const auto bits = static_cast<double>(words[e % 4]);
    out.data[e] = bits < 0x1p31 ? bits : bits - 0x1p32;
  }
  return {out};
}

inline double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

inline const std::map<std::string, ReferenceFn>& references() {
  using D = double;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  static const std::map<std::string, ReferenceFn> table = {
      {"abs", pointwise([](D x) { return std::fabs(x); })},
      {"add", pointwise([](D a, D b) { return a + b; })},
      {"ceil", pointwise([](D x) { return std::ceil(x); })},
      {"cos", pointwise([](D x) { return std::cos(x); })},
      {"div", pointwise([](D a, D b) { return a / b; })},
      {"equal", pointwise([](D a, D b) { return a == b ? 1. : 0.; })},
      {"erf", pointwise([](D x) { return std::erf(x); })},
      {"exp", pointwise([](D x) { return std::exp(x); })},
      {"expm1", pointwise([](D x) { return std::expm1(x); })},
      {"floor", pointwise([](D x) { return std::floor(x); })},
      {"greater", pointwise([](D a, D b) { return a > b ? 1. : 0.; })},
      {"greater_equal", pointwise([](D a, D b) { return a >= b ? 1. : 0.; })},
      {"isfinite", pointwise([](D x) { return std::isfinite(x) ? 1. : 0.; })},
      {"less", pointwise([](D a, D b) { return a < b ? 1. : 0.; })},
      {"less_equal", pointwise([](D a, D b) { return a <= b ? 1. : 0.; })},
      {"log", pointwise([](D x) { return std::log(x); })},
      {"log1p", pointwise([](D x) { return std::log1p(x); })},
      {"logical_and", pointwise([](D a, D b) { return a != 0 && b != 0 ? 1. : 0.; })},
      {"logical_not", pointwise([](D x) { return x == 0 ? 1. : 0.; })},
      {"logical_or", pointwise([](D a, D b) { return a != 0 || b != 0 ? 1. : 0.; })},
      {"maximum", pointwise(ieee_maximum)},
      {"minimum", pointwise(ieee_minimum)},
      {"mul", pointwise([](D a, D b) { return a * b; })},
      {"neg", pointwise([](D x) { return -x; })},
      {"not_equal", pointwise([](D a, D b) { return a != b ? 1. : 0.; })},
      {"pow", pointwise([](D a, D b) { return std::pow(a, b); })},
      {"relu", pointwise([](D x) { return x < 0 ? 0 : x; })},
      {"round", pointwise([](D x) { return std::nearbyint(x); })},
      {"select", pointwise([](D c, D a, D b) { return c != 0 ? a : b; })},
      {"sigmoid", pointwise([](D x) { return 1 / (1 + std::exp(-x)); })},
      {"sign", pointwise(sign_of)},
      {"sin", pointwise([](D x) { return std::sin(x); })},
      {"sqrt", pointwise([](D x) { return std::sqrt(x); })},
      {"sub", pointwise([](D a, D b) { return a - b; })},
      {"tanh", pointwise([](D x) { return std::tanh(x); })},
      {"cast", [](Arrays in, const ir::Attrs& attrs) -> Arrays {
         for (double& v : in[0].data) v = cast_value(v, attrs.get_dtype("to"));
         return in;
       }},
      {"argmax", argmax_reference},
      {"broadcast", [](Arrays in, const ir::Attrs& attrs) -> Arrays {
         Array out(attrs.get_ints("shape"));
         out.each([&](const Index& i) { out.at(i) = broadcast_at(in[0], i); });
         return {out};
       }},
      {"concat", concat_reference},
      {"gather", gather_reference},
      {"in_range", in_range_reference},
      {"iota", [](Arrays, const ir::Attrs& attrs) -> Arrays {
         Array out(attrs.get_ints("shape"));
         out.each([&](const Index& i) { out.at(i) = static_cast<double>(i[attrs.get_int("axis")]); });
         return {out};
       }},
      {"matmul", matmul_reference},
      {"pad", pad_reference},
      {"reduce_max", reduction(-kInf, ieee_maximum)},
      {"reduce_min", reduction(kInf, ieee_minimum)},
      {"reduce_prod", reduction(1, [](D a, D b) { return a * b; })},
      {"reduce_sum", reduction(0, [](D a, D b) { return a + b; })},
      {"reshape", [](Arrays in, const ir::Attrs& attrs) -> Arrays {
         in[0].dims = attrs.get_ints("shape");
         return in;
       }},
      {"rng_bits", rng_bits_reference},
      {"scatter_add", scatter_add_reference},
      {"slice", slice_reference},
      {"split", split_reference},
      {"transpose", transpose_reference},
  };
  return table;
}

}  // namespace aicf::test
