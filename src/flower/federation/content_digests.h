/// \file  Tells what a node has by content, without revealing it: its rows, its base and its tokenizer as salted
/// digests. The salt is random per node and run and never leaves the node, so nobody else can compute the digest of
/// guessed rows. The node sends the digests when it joins a run, and again after each restart: equal digests mean equal
/// content. flower/federation/own_content.h computes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace evenkeel::flower {

/// Salted digests of what a node has, each 64 hexadecimal digits; all are empty if none were sent.
struct ContentDigests {
  std::string rows{};       ///< training rows as tokenised, in their order
  std::string tests{};      ///< the node's own test rows, in their order
  int64_t tested = 0;       ///< number of the node's own test rows
  std::string base{};       ///< weights and configs of its model
  std::string tokenizer{};  ///< files of its tokenizer and chat templates

  bool given() const { return !rows.empty(); }
  bool operator==(const ContentDigests&) const = default;
  void visit(auto& field) {  // base/format/record.h
    field("rows", rows);
    field("tests", tests);
    field("tested", tested, 0);
    field("base", base);
    field("tokenizer", tokenizer);
  }
};

/// Names the parts in which a node differs from what it joined with: "rows", "test rows", "base", "tokenizer". Empty if
/// nothing differs, or if `joined` has no digests. A different number of test rows is no such part: the scores of such
/// a node are refused.
std::vector<std::string> changed_parts(const ContentDigests& joined, const ContentDigests& now);
/// Returns a sentence about changed parts, for messages. If all parts differ, the node may have lost its salt.
std::string change_text(const std::vector<std::string>& parts);

}  // namespace evenkeel::flower
