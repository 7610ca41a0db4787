#include "ir/lexer.h"

#include <fmt/format.h>

#include <charconv>

#include "ir/attrs.h"

namespace aicf::ir {
namespace {

// Not <cctype>: its answers depend on the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '.'; }
bool is_name(char c) { return is_word(c) || c == '/' || c == '-'; }

bool all_digits(std::string_view text) {
  for (char c : text) {
    if (!is_digit(c)) return false;
  }
  return !text.empty();
}

}  // namespace

ValueName::Kind kind_of_bare_name(std::string_view text) {
  if (all_digits(text)) return ValueName::Kind::number;
  if (text.starts_with('c') && all_digits(text.substr(1))) return ValueName::Kind::constant;
  return ValueName::Kind::word;
}

std::string word_text(const std::string& name) {
  bool bare = !name.empty() && kind_of_bare_name(name) == ValueName::Kind::word;
  for (char c : name) bare = bare && is_name(c);
  return bare ? name : to_string(AttrValue(name));
}

std::string describe(const Token& token) {
  if (token.kind == Token::Kind::newline) return "the end of the line";
  if (token.kind == Token::Kind::end) return "the end of the text";
  std::string out;
  constexpr size_t kMaxShown = 40;
  for (char c : token.source.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return token.source.size() > kMaxShown ? out + "…" : out;
}

void fail_at(const Token& where, const std::string& message, const std::string& hint) {
  throw Error(fmt::format("line {}, column {}: {}", where.line, where.column, message), hint);
}

void fail_expected(const Token& got, const std::string& expected, const std::string& hint) {
  fail_at(got, fmt::format("expected {}, got {}", expected, describe(got)), hint);
}

bool Lexer::skip_blank() {
  bool passed = false;
  while (!done()) {
    const char c = peek();
    if (c == '\n') {
      passed = true;
      ++line_;
      line_start_ = at_ + 1;
    } else if (c == '#') {
      while (!done() && peek() != '\n') ++at_;
      continue;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      break;
    }
    ++at_;
  }
  return passed;
}

Token Lexer::start(Token::Kind kind) const {
  Token token;
  token.kind = kind;
  token.source = text_.substr(at_, 1);
  token.line = line_;
  token.column = static_cast<int>(at_ - line_start_) + 1;
  return token;
}

// The source of a token runs from where it started to where the lexer stands.
Token Lexer::finish(Token token) const {
  const size_t begin = line_start_ + static_cast<size_t>(token.column) - 1;
  token.source = text_.substr(begin, at_ - begin);
  return token;
}

Token Lexer::next() {
  Token line_end = start(Token::Kind::newline);
  if (skip_blank()) return line_end;
  if (done()) return start(Token::Kind::end);
  const char c = peek();
  if (c == '%') return value();
  if (c == '"') {
    Token token = start(Token::Kind::string);
    token.string = quoted(token);
    return finish(std::move(token));
  }
  if (is_digit(c) || c == '-') return number();
  if (is_letter(c)) {
    const Token token = start(Token::Kind::word);
    while (is_word(peek())) ++at_;
    return finish(token);
  }
  Token token = start(Token::Kind::symbol);
  constexpr std::string_view kSymbols = "{}()[],:=";
  if (kSymbols.find(c) == std::string_view::npos) fail_expected(token, "a name, a number, a string or a symbol");
  at_ += c == ':' && peek(1) == '=' ? 2 : 1;
  return finish(std::move(token));
}

std::string Lexer::quoted(const Token& token) {
  std::string out;
  ++at_;
  while (true) {
    if (done() || peek() == '\n') fail_at(token, "expected a closing \" on the same line, got the end of the line");
    const char c = peek();
    ++at_;
    if (c == '"') return out;
    if (c != '\\') {
      out += c;
      continue;
    }
    const char escaped = peek();
    if (escaped != '"' && escaped != '\\' && escaped != 'n') {
      fail_expected(start(Token::Kind::symbol), "one of \" \\ n after a backslash");
    }
    out += escaped == 'n' ? '\n' : escaped;
    ++at_;
  }
}

Token Lexer::value() {
  Token token = start(Token::Kind::value);
  ++at_;
  if (peek() == '"') {
    token.name.text = quoted(token);
    if (token.name.text.empty()) fail_at(token, "expected a name after %, got an empty one");
  } else {
    const size_t begin = at_;
    while (is_name(peek())) ++at_;
    token.name.text = text_.substr(begin, at_ - begin);
    if (token.name.text.empty()) fail_at(token, "expected a name after %, got none");
    token.name.kind = kind_of_bare_name(token.name.text);
  }
  if (peek() == '#') {
    const size_t begin = ++at_;
    while (is_digit(peek())) ++at_;
    const char* last = text_.data() + at_;
    const auto [end, error] = std::from_chars(text_.data() + begin, last, token.name.suffix);
    if (error != std::errc() || end != last) fail_at(finish(token), "expected a number after #");
  }
  return finish(std::move(token));
}

// Signs belong to a number at its start and after the letter of its exponent; words such as 0x1p+0 and -inf are whole.
Token Lexer::number() {
  const Token token = start(Token::Kind::number);
  ++at_;
  const bool hex = text_.substr(at_ - 1).starts_with("0x") || text_.substr(at_).starts_with("0x");
  while (is_word(peek())) {
    const char c = peek();
    const bool exponent = hex ? c == 'p' || c == 'P' : c == 'e' || c == 'E';
    ++at_;
    if (exponent && (peek() == '+' || peek() == '-')) ++at_;
  }
  return finish(token);
}

}  // namespace aicf::ir
