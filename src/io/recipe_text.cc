#include "io/recipe_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "aicf/error.h"
#include "aicf/suggest.h"
#include "io/bytes.h"

namespace aicf::io {
namespace {

// The parser recurses, and its tables destroy themselves, once a level: keys of thousands of dots would exhaust the
// stack. A number has one dot and a key of a recipe three, so 16 between two separators is no recipe. (Nested values
// are limited by the parser.) Dots in strings and comments do not count.
constexpr int kMaxDots = 16;

// And it takes some characters beyond ASCII, met where white space may stand, for impossible (undefined behaviour). In
// comments and in strings of one line it never asks; anywhere else TOML allows none, but in strings of several lines.
void check_text(std::string_view text, const std::string& file) {
  size_t line = 1, i = 0;
  int dots = 0;
  const auto check_ascii = [&] {
    if (static_cast<unsigned char>(text[i]) < 0x80 || (i < 3 && text.starts_with("\xEF\xBB\xBF"))) return;
    throw Error(fmt::format("{}:{}: a character beyond ASCII outside comments and strings of one line", file, line));
  };
  const auto skip_to = [&](std::string_view end, bool escapes) {
    const bool one_line = end.size() == 1;
    for (; i < text.size() && text.substr(i, end.size()) != end; ++i) {
      if (escapes && text[i] == '\\') ++i;
      if (i >= text.size() || (one_line && text[i] == '\n')) return;  // not TOML: the parser says so
      if (!one_line) check_ascii();
      if (text[i] == '\n') ++line;
    }
    i = std::min(text.size(), i + end.size());
  };
  while (i < text.size()) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const size_t quotes = text.substr(i, 3) == std::string(3, c) ? 3 : 1;
      const std::string end(quotes, c);
      i += quotes;
      skip_to(end, c == '"');
      continue;
    }
    if (c == '#') {
      while (i < text.size() && text[i] != '\n') ++i;
      continue;
    }
    check_ascii();
    if (c == '.' && ++dots > kMaxDots) {
      throw Error(fmt::format("{}:{}: a key of more than {} parts", file, line, kMaxDots));
    }
    if (c == '\n' || std::string_view(",=[]{}").find(c) != std::string_view::npos) dots = 0;
    if (c == '\n') ++line;
    ++i;
  }
}

// The parser's messages may quote what it met.
std::string one_line(std::string_view text) {
  std::string line;
  for (char c : text) line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  return line;
}

std::string range_text(const RecipeRange& r) {
  if (std::isinf(r.low)) return "";
  if (std::isinf(r.high)) return fmt::format(" >= {}", r.low);
  return fmt::format(" in [{}, {}{}", r.low, r.high, r.below_high ? ')' : ']');
}

bool in_range(const RecipeRange& r, double value) {
  return std::isfinite(value) && value >= r.low && (r.below_high ? value < r.high : value <= r.high);
}

// An integer is a number too; a number is no integer.
bool read_number(const toml::node& node, const RecipeRange& range, double& value) {
  if (const auto* f = node.as_floating_point()) {
    value = f->get();
  } else if (const auto* n = node.as_integer()) {
    value = static_cast<double>(n->get());
  } else {
    return false;
  }
  return in_range(range, value);
}

bool read_integer(const toml::node& node, const RecipeRange& range, int64_t& value) {
  const auto* n = node.as_integer();
  if (n == nullptr || !in_range(range, static_cast<double>(n->get()))) return false;
  value = n->get();
  return true;
}

template <class T, class Read>
bool read_list(const toml::node& node, std::vector<T>& values, const Read& read) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return false;
  std::vector<T> list;
  for (const toml::node& item : *array) {
    T value{};
    if (!read(item, value)) return false;
    list.push_back(value);
  }
  values = std::move(list);
  return true;
}

struct Assign {
  const RecipeKey& key;
  const toml::node& node;
  const std::string& at;
  const std::string& path;

  void require(bool ok, const std::string& expected, std::string hint = {}) const {
    if (!ok)
      throw Error(fmt::format("{}: {}: expected {}, got {}", at, path, expected, describe(node)), std::move(hint));
  }

  void operator()(std::string* to) const {
    const auto* text = node.as_string();
    require(text != nullptr, "a text");
    const std::string value = text->get();
    if (!key.choices.empty() && std::count(key.choices.begin(), key.choices.end(), value) == 0) {
      std::string list;
      for (const std::string& c : key.choices) {
        if (!c.empty()) list += (list.empty() ? "" : ", ") + c;
      }
      require(false, "one of " + list, base::did_you_mean(value, key.choices));
    }
    *to = value;
  }
  void operator()(bool* to) const {
    require(node.is_boolean(), "true or false");
    *to = node.as_boolean()->get();
  }
  void operator()(int64_t* to) const {
    require(read_integer(node, key.range, *to), "an integer" + range_text(key.range));
  }
  void operator()(double* to) const {
    double value = 0;
    require(read_number(node, key.range, value), "a number" + range_text(key.range));
    *to = value;
  }
  void operator()(std::optional<double>* to) const {
    double value = 0;
    (*this)(&value);
    *to = value;
  }
  void operator()(std::vector<int64_t>* to) const {
    require(read_list(node, *to, [&](const toml::node& n, int64_t& v) { return read_integer(n, key.range, v); }),
            "a list of integers" + range_text(key.range));
  }
  void operator()(std::vector<double>* to) const {
    require(read_list(node, *to, [&](const toml::node& n, double& v) { return read_number(n, key.range, v); }),
            "a list of numbers" + range_text(key.range));
  }
  void operator()(std::vector<RecipeLayer>*) const { throw InternalError("layers assigned as a value"); }
};

}  // namespace

void malformed_toml() { throw Error("malformed text"); }

std::string describe(const toml::node& node) {
  if (const auto* text = node.as_string()) return quote(text->get());
  if (const auto* n = node.as_integer()) return fmt::format("{}", n->get());
  if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  if (node.is_table()) return "a table";
  if (const toml::array* array = node.as_array()) {
    std::string list = "[";
    for (size_t i = 0; i < array->size(); ++i) {
      if (i == 4) return list + ", …]";
      list += (i ? ", " : "") + (array->get(i)->is_array() ? std::string("a list") : describe(*array->get(i)));
    }
    return list + "]";
  }
  return "a date or time";
}

toml::table parse_toml(std::string_view text, const std::string& file) {
  check_text(text, file);
  try {
    return toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& e) {
    throw Error(fmt::format("{}:{}: {}", file, e.source().begin.line, one_line(e.description())));
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", file, e.what()), "a table may lack its name, as in \"[#\"");
  }
}

toml::table parse_recipe_value(const std::string& value, bool plain_text, const std::string& at) {
  const size_t start = value.find_first_not_of(" \t");
  const bool quoted = start != std::string::npos && (value[start] == '"' || value[start] == '\'');
  if (plain_text && !quoted) return toml::table{{"v", value}};
  try {
    toml::table table = parse_toml("v = " + value, at);
    if (table.size() == 1) return table;
  } catch (const Error&) {
  }
  throw Error(fmt::format("{}: expected a value in TOML's syntax, got {}", at, quote(value)));
}

void assign_recipe_value(const RecipeKey& key, const RecipeSlot& slot, const toml::node& node, const std::string& at,
                         const std::string& path) {
  std::visit(Assign{key, node, at, path}, slot);
}

}  // namespace aicf::io
