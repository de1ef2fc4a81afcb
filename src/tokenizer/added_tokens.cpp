#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/unicode/unicode.h"

namespace evenkeel::tokenizer {
namespace {

size_t pair_index(char first, char second) {
  return static_cast<size_t>(static_cast<unsigned char>(first)) << 8 | static_cast<unsigned char>(second);
}

bool has(uint32_t code_point, uint8_t bits) { return unicode::flags()[code_point] & bits; }

bool ends_with_word(std::string_view text) {
  return !text.empty() && has(unicode::decode_before(text.data(), text.data() + text.size()).value, unicode::kWord);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && has(unicode::decode(text.data()).value, unicode::kWord);
}

size_t spaces_at_start(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto code = unicode::decode(text.data() + at);
    if (!has(code.value, unicode::kSpace)) break;
    at += code.length;
  }
  return at;
}

/// Returns the offset at which the trailing white space begins, at least `limit`.
size_t spaces_begin_at_end(std::string_view text, size_t limit) {
  size_t end = text.size();
  while (end > limit) {
    const auto code = unicode::decode_before(text.data(), text.data() + end);
    if (!has(code.value, unicode::kSpace)) break;
    end -= code.length;
  }
  return end;
}

}  // namespace

int32_t AddedTokenMatcher::child(int32_t node, char byte) const {
  for (const auto& [label, next] : nodes_[node].next)
    if (label == static_cast<unsigned char>(byte)) return next;
  return -1;
}

void AddedTokenMatcher::add(std::string_view pattern, const AddedToken& token) {
  int32_t node = 0;
  for (const char byte : pattern) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_[node].next.emplace_back(static_cast<unsigned char>(byte), next);
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip, token.is_text});
  if (pattern.size() > 1)
    starts_.set(pair_index(pattern[0], pattern[1]));
  else
    for (int second = 0; second < 256; ++second) starts_.set(pair_index(pattern[0], static_cast<char>(second)));
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, size_t begin) const {
  Match match{begin, begin};
  int32_t node = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    node = child(node, text[at]);
    if (node < 0) break;
    if (nodes_[node].token >= 0) match = {begin, at + 1, nodes_[node].token};
  }
  return match;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (at + 1 < text.size() && !starts_[pair_index(text[at], text[at + 1])]) continue;
    const auto match = longest_at(text, at);
    if (match.token >= 0) return match;
  }
  return {text.size(), text.size()};
}

void AddedTokenMatcher::split(std::string_view text, std::vector<Piece>& out) const {
  size_t done = 0;
  const auto other = [&](size_t begin, size_t end) {
    if (begin < end) out.push_back({text.substr(begin, end - begin), -1});
  };
  if (!empty()) {
    // The search continues at the end of the match itself, even if stripping took more, because a later token may begin
    // within the stripped space.
    for (auto match = find(text, 0); match.token >= 0; match = find(text, match.end)) {
      const auto& token = tokens_[match.token];
      if (token.is_text) continue;
      if (token.single_word &&
          (ends_with_word(text.substr(0, match.begin)) || starts_with_word(text.substr(match.end))))
        continue;
      size_t begin = match.begin, end = match.end;
      if (token.lstrip) begin = std::max(spaces_begin_at_end(text.substr(0, begin), std::min(done, begin)), done);
      if (token.rstrip) end += spaces_at_start(text.substr(end));
      if (begin >= end) continue;  // the whole match was stripped by the token before
      other(done, begin);
      out.push_back({text.substr(begin, end - begin), token.id});
      done = end;
    }
  }
  other(done, text.size());
}

}  // namespace evenkeel::tokenizer
