#include "data/text_metrics.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <vector>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace evenkeel {
namespace {

bool is_punctuation(uint32_t c) { return c < 0x80 && std::ispunct(static_cast<int>(c)); }
/// Python's \w, less the underscore, which goes with the punctuation.
bool is_word(uint32_t c) { return unicode::flags()[c] & (unicode::kLetter | unicode::kNumber); }
/// Python's split() knows the four separators of ASCII too.
bool is_space(uint32_t c) { return (unicode::flags()[c] & unicode::kSpace) || (c >= 0x1C && c <= 0x1F); }
/// Code points [first, last) against the three words.
bool is_article(std::vector<uint32_t>::const_iterator first, std::vector<uint32_t>::const_iterator last) {
  constexpr std::array<std::string_view, 3> kArticles = {"a", "an", "the"};
  return std::any_of(kArticles.begin(), kArticles.end(), [&](std::string_view article) {
    return std::equal(first, last, article.begin(), article.end(),
                      [](uint32_t c, char want) { return c == static_cast<uint32_t>(want); });
  });
}

using CodePoints = std::vector<uint32_t>;

/// In lower case.
CodePoints code_points_of(std::string_view text) {
  const auto valid = unicode::replace_invalid(text);
  CodePoints points;
  for (size_t at = 0; at < valid.size();) {
    const auto point = unicode::decode(valid.data() + at);
    at += point.length;
    points.push_back(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))));
  }
  return points;
}

CodePoints lowered_without_punctuation(std::string_view text) {
  auto points = code_points_of(text);
  std::erase_if(points, is_punctuation);
  return points;
}

/// A space for every article. An article is a whole run of word characters, as in the source's \b(a|an|the)\b.
CodePoints without_articles(const CodePoints& points) {
  CodePoints kept;
  for (auto at = points.begin(); at != points.end();) {
    const auto end = is_word(*at) ? std::find_if_not(at, points.end(), is_word) : at + 1;
    if (is_article(at, end))
      kept.push_back(' ');
    else
      kept.insert(kept.end(), at, end);
    at = end;
  }
  return kept;
}

std::vector<std::string> words_of(std::string_view text) {
  const auto points = without_articles(lowered_without_punctuation(text));
  std::vector<std::string> words;
  for (auto at = points.begin(); (at = std::find_if_not(at, points.end(), is_space)) != points.end();) {
    words.emplace_back();
    for (; at != points.end() && !is_space(*at); ++at) unicode::append(words.back(), *at);
  }
  return words;
}

double f1_of(const std::vector<std::string>& output, const std::vector<std::string>& reference) {
  if (output.empty() || reference.empty()) return 0;
  std::map<std::string_view, int64_t> left;
  for (const auto& word : reference) ++left[word];
  double common = 0;
  for (const auto& word : output)
    if (--left[word] >= 0) ++common;
  // 2PR / (P + R) with P = common / |output|, R = common / |reference|
  return 2 * common / static_cast<double>(output.size() + reference.size());
}

/// Without white space around it, in lower case.
std::string bare_text(std::string_view text) {
  const auto points = code_points_of(text);
  const auto first = std::find_if_not(points.begin(), points.end(), is_space);
  const auto end = std::find_if_not(points.rbegin(), std::make_reverse_iterator(first), is_space).base();
  std::string bare;
  for (auto at = first; at != end; ++at) unicode::append(bare, *at);
  return bare;
}

/// References that are articles and punctuation alone ("A", "*"): nothing is left of them to compare by words.
TextMatch match_as_they_stand(std::string_view output, std::span<const std::string> references) {
  const auto written = bare_text(output);
  const bool said = std::any_of(references.begin(), references.end(),
                                [&](const auto& one) { return !written.empty() && written == bare_text(one); });
  return {said ? 1.0 : 0.0, said ? 1.0 : 0.0};
}

}  // namespace

std::string normalize_answer(std::string_view text) { return join(words_of(text), " "); }

bool exact_match(std::string_view output, std::string_view reference) {
  const auto words = words_of(output);
  return !words.empty() && words == words_of(reference);
}

double token_f1(std::string_view output, std::string_view reference) {
  return f1_of(words_of(output), words_of(reference));
}

TextMatch best_match(std::string_view output, std::span<const std::string> references) {
  EK_CHECK(!references.empty(), kInternal, "best_match: no reference to compare with");
  std::vector<std::vector<std::string>> accepted;
  for (const auto& reference : references)
    if (auto words = words_of(reference); !words.empty()) accepted.push_back(std::move(words));
  if (accepted.empty()) return match_as_they_stand(output, references);
  const auto written = words_of(output);
  TextMatch best;
  for (const auto& reference : accepted) {
    best.exact_match = std::max(best.exact_match, written == reference ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, f1_of(written, reference));
  }
  return best;
}

}  // namespace evenkeel
