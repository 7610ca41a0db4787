// The text form of a graph (grammar in docs/ir.md): print, parse, verify, hash.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace aicf::ir {

// Bodies of ops inside bodies of ops: parse and verify refuse more.
inline constexpr int kMaxBodyDepth = 16;

// parse(print(g)) prints the same text. Labels of tmps are printed when they are unique.
std::string print(const Graph& graph);
// The text without labels: tmps are numbered in op order. Equal texts mean equal programs.
std::string canonical_text(const Graph& graph);
// 64-bit hash of canonical_text. A cache compares the texts too: a collision must not return another program.
uint64_t structural_hash(const Graph& graph);

// Throws Error "line L, column C: …" on anything malformed; the graph returned has been verified.
Graph parse(std::string_view text);

// Throws Error naming the op or value: operands defined before use, types equal to the re-inferred ones, known
// attributes, one update per external, guards bool scalars, outputs and keys unique, roles consistent.
void verify(const Graph& graph);

// Throws Error "SUBJECT: expected …, got …" on an attribute the op does not know, of another type, or missing.
void check_attrs(const OpDef& def, const Attrs& attrs, const std::string& subject);
// Throws Error when the expression reads an input, itself, a state that is derived later, or an op that draws.
// REQUIRES: an element of graph.derivations().
void check_derivation(const Graph& graph, const Derivation& derivation);

}  // namespace aicf::ir
