// Tokens of the text form (docs/ir.md). The text is untrusted: any byte may come.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "aicf/error.h"

namespace aicf::ir {

// The spelling of a value: `%h`, `%h#12`, `%12`, `%c0`, `%"odd name"`.
struct ValueName {
  // word: a key or a label. number: `%12`, a tmp without a label. constant: `%c0`, a constant without a key.
  enum class Kind : uint8_t { word, number, constant };
  Kind kind = Kind::word;
  std::string text;     // unquoted; of `%12` "12"
  int64_t suffix = -1;  // of `%h#12`

  auto operator<=>(const ValueName&) const = default;
};

// What a bare name made of these characters means; quotes make any text a word.
ValueName::Kind kind_of_bare_name(std::string_view text);
// "fc1.weight", or quoted when it would not read back as a word otherwise.
std::string word_text(const std::string& name);

struct Token {
  enum class Kind : uint8_t { word, value, string, number, symbol, newline, end };
  Kind kind = Kind::end;
  std::string_view source;  // as written
  std::string string;       // of a string, unescaped
  ValueName name;           // of a value
  int line = 1, column = 1;

  bool is(std::string_view text) const { return (kind == Kind::symbol || kind == Kind::word) && source == text; }
};

// For messages: the source cut short, with odd bytes escaped.
std::string describe(const Token& token);

// "line L, column C: MESSAGE"
[[noreturn]] void fail_at(const Token& where, const std::string& message, const std::string& hint = {});
[[noreturn]] void fail_expected(const Token& got, const std::string& expected, const std::string& hint = {});

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  // Several line ends, blank lines and comments are one newline. At the end: `end`, for ever.
  Token next();

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool done() const { return at_ >= text_.size(); }
  bool skip_blank();  // returns whether a line end was passed
  Token start(Token::Kind kind) const;
  Token finish(Token token) const;
  std::string quoted(const Token& token);
  Token value();
  Token number();

  std::string_view text_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
};

}  // namespace aicf::ir
