#include "tokenizer/split.h"

#include <algorithm>
#include <array>

#include "tokenizer/replace.h"

namespace evenkeel::tokenizer {
namespace {

constexpr size_t kMostSteps = 64;  // because each runs over every text

enum Class : uint8_t { kOther = 0, kLetter = unicode::kLetter, kNumber = unicode::kNumber, kSpace = unicode::kSpace };
constexpr uint8_t kClassBits = kLetter | kNumber | kSpace;

struct Scan {
  const char* at;
  const char* end;
  const uint8_t* flags;

  struct Step {
    uint8_t kind;
    uint32_t length;
  };
  Step peek(const char* from) const {
    const auto byte = static_cast<unsigned char>(*from);
    if (byte < 0x80) return {static_cast<uint8_t>(flags[byte] & kClassBits), 1};
    const auto code = unicode::decode(from);
    return {static_cast<uint8_t>(flags[code.value] & kClassBits), code.length};
  }
  const char* skip(const char* from, uint8_t kind) const {
    while (from < end) {
      const auto step = peek(from);
      if (step.kind != kind) break;
      from += step.length;
    }
    return from;
  }
};

/// Returns the length of 's 't 'm 'd 're 've 'll at the apostrophe, or 0.
size_t contraction(std::string_view text) {
  const auto second = text.substr(1, 1), pair = text.substr(1, 2);
  if (second == "s" || second == "t" || second == "m" || second == "d") return 2;
  return pair == "re" || pair == "ve" || pair == "ll" ? 3 : 0;
}

/// Returns the length of white space: all of it at the end of the text, otherwise without the last character, which
/// begins the next word.
size_t space_run(const Scan& scan) {
  const char* stop = scan.skip(scan.at, kSpace);
  if (stop == scan.end) return stop - scan.at;
  const size_t without_last = (stop - scan.at) - unicode::decode_before(scan.at, stop).length;
  return without_last > 0 ? without_last : stop - scan.at;
}

}  // namespace

size_t gpt2_word(std::string_view text) {
  if (text[0] == '\'')
    if (const size_t length = contraction(text)) return length;
  const Scan scan{text.data(), text.data() + text.size(), unicode::flags()};
  const char* start = scan.at;
  auto first = scan.peek(start);
  if (*start == ' ' && text.size() > 1) {
    const auto second = scan.peek(start + 1);
    if (second.kind != kSpace) {
      first = second;
      ++start;
    }
  }
  if (first.kind == kSpace) return space_run(scan);
  return scan.skip(start + first.length, first.kind) - scan.at;
}

PreTokenizer::PreTokenizer(const JsonView& json) { add(json); }

void PreTokenizer::add(const JsonView& json) {
  const auto type = json.at("type");
  json.require(!has_byte_level_, ": nothing may follow ByteLevel");
  json.require(steps_.size() < kMostSteps, ": more than ", kMostSteps, " steps");
  if (type.string() == "ByteLevel") return add_byte_level(json);
  if (type.string() == "Split") return add_split(json);
  if (type.string() == "Digits") return add_digits(json);
  if (type.string() == "Metaspace") return add_metaspace(json);
  if (type.string() == "WhitespaceSplit")
    return steps_.push_back({SplitPattern::regex("\\s+"), Behavior::kRemoved, false});
  type.require(type.string() == "Sequence", " is ", shown(type.json()),
               ", allowed: ByteLevel, Split, Digits, WhitespaceSplit, Metaspace, Sequence");
  for (const auto& part : json.at("pretokenizers").items()) add(part);  // JsonLimits::depth limits the nesting
}

void PreTokenizer::add_byte_level(const JsonView& json) {
  has_byte_level_ = true;
  add_prefix_space_ = json.flag_or("add_prefix_space", true);
  use_regex_ = json.flag_or("use_regex", true);
}

void PreTokenizer::add_split(const JsonView& json) {
  steps_.push_back({pattern_of(json), behavior_of(json), json.flag_or("invert", false)});
}

void PreTokenizer::add_digits(const JsonView& json) {
  const bool single = json.flag_or("individual_digits", false);
  steps_.push_back({SplitPattern::regex("\\p{N}"), single ? Behavior::kIsolated : Behavior::kContiguous, false});
}

void PreTokenizer::add_metaspace(const JsonView& json) {
  steps_.push_back({std::nullopt, Behavior::kIsolated, false, metaspace_of(json)});
  asks_for_first_ |= steps_.back().metaspace->scheme == Metaspace::kFirst;
}

PreTokenizer::Behavior PreTokenizer::behavior_of(const JsonView& json) {
  static constexpr std::array<std::string_view, 5> kNames = {"Removed", "Isolated", "MergedWithPrevious",
                                                             "MergedWithNext", "Contiguous"};
  const auto name = json.at("behavior");
  const auto found = std::find(kNames.begin(), kNames.end(), name.string());
  name.require(found != kNames.end(), " is ", shown(name.json()), ", allowed: ", join(kNames));
  return static_cast<Behavior>(found - kNames.begin());
}

/// Joins neighbours: spans of the same kind (Contiguous), or the first of adjacent matches with the span before it
/// (MergedWithPrevious) or, on the reversed list, after it (MergedWithNext).
std::vector<TextSpan> PreTokenizer::joined(const std::vector<TextSpan>& spans, Behavior behavior) {
  std::vector<TextSpan> out;
  bool previous = false;
  for (const auto& span : spans) {
    const bool join = behavior == Behavior::kContiguous ? span.matched == previous : span.matched && !previous;
    if (join && !out.empty())
      out.back() = {std::min(out.back().begin, span.begin), std::max(out.back().end, span.end), false};
    else
      out.push_back(span);
    previous = span.matched;
  }
  return out;
}

void PreTokenizer::apply(const Step& step, std::string_view text, std::vector<std::string_view>& out) {
  auto spans = step.pattern->find(text);
  if (step.invert)
    for (auto& span : spans) span.matched = !span.matched;
  const bool backwards = step.behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(spans.begin(), spans.end());
  if (step.behavior != Behavior::kIsolated && step.behavior != Behavior::kRemoved) spans = joined(spans, step.behavior);
  if (backwards) std::reverse(spans.begin(), spans.end());
  for (const auto& span : spans)
    if (span.begin < span.end && !(step.behavior == Behavior::kRemoved && span.matched))
      out.push_back(text.substr(span.begin, span.end - span.begin));
}

std::vector<std::string_view> PreTokenizer::run_steps(std::string_view text, bool first,
                                                      std::deque<std::string>& written) const {
  std::vector<std::string_view> pieces = {text}, next;
  for (const auto& step : steps_) {
    next.clear();
    for (const auto& piece : pieces) {
      if (step.metaspace)
        step.metaspace->words(written.emplace_back(step.metaspace->written(piece, first && &piece == pieces.data())),
                              next);
      else
        apply(step, piece, next);
    }
    first = first && !next.empty() && (step.metaspace || next.front().data() == pieces.front().data());
    pieces.swap(next);
  }
  return pieces;
}

}  // namespace evenkeel::tokenizer
