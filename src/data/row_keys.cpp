#include "data/row_keys.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "data/text_metrics.h"

namespace evenkeel::data {
namespace {

struct RowKey {
  std::string_view name;
  std::array<KeyUse, kRowLayouts> use;  ///< by RowLayout
};

using enum KeyUse;

constexpr std::array<KeyUse, kRowLayouts> everywhere_but_text(KeyUse use) {
  return {use, use, use, use, use, use, kLost};
}
constexpr std::array<KeyUse, kRowLayouts> kNowhere = {kLost, kLost, kLost, kLost, kLost, kLost, kLost};

// clang-format off
constexpr auto kKeys = std::to_array<RowKey>({
    // key            alpaca     dolly      texts      lists of turns: prompt, messages, sharegpt; text
    {"instruction",   {kQuestion, kQuestion, kLost,     kLost,   kLost,  kLost,  kLost}},
    {"prompt",        {kLost,     kLost,     kQuestion, kPrompt, kLost,  kLost,  kLost}},
    {"output",        {kAnswer,   kLost,     kLost,     kLost,   kLost,  kLost,  kLost}},
    {"response",      {kLost,     kAnswer,   kLost,     kLost,   kLost,  kLost,  kLost}},
    {"completion",    {kLost,     kLost,     kAnswer,   kTurns,  kLost,  kLost,  kLost}},
    {"messages",      {kLost,     kLost,     kLost,     kLost,   kTurns, kLost,  kLost}},
    {"conversations", {kLost,     kLost,     kLost,     kLost,   kLost,  kTurns, kLost}},
    {"text",          {kLost,     kLost,     kLost,     kLost,   kLost,  kLost,  kText}},
    {"input",         {kContext,  kContext,  kContext,  kLost,   kLost,  kLost,  kLost}},
    {"context",       {kContext,  kContext,  kContext,  kLost,   kLost,  kLost,  kLost}},
    {"history",       {kHistory,  kHistory,  kHistory,  kLost,   kLost,  kLost,  kLost}},
    {"system",               everywhere_but_text(kSystem)},
    {"tools",                everywhere_but_text(kTemplate)},
    {"documents",            everywhere_but_text(kTemplate)},
    {"chat_template_kwargs", everywhere_but_text(kTemplate)},
    {"options",              everywhere_but_text(kScore)},
    {"choices",              everywhere_but_text(kScore)},
    {"answer",               everywhere_but_text(kScore)},
    {"label",                everywhere_but_text(kGroup)},
    // Names of the same things in the formats of other programs.
    {"question", kNowhere}, {"query", kNowhere}, {"system_prompt", kNowhere}, {"system_message", kNowhere},
    {"functions", kNowhere}, {"image", kNowhere}, {"images", kNowhere}, {"audio", kNowhere}, {"audios", kNowhere},
    {"video", kNowhere}, {"videos", kNowhere},
});
// clang-format on

static_assert(std::all_of(kKeys.begin(), kKeys.end(),
                          [](const RowKey& key) {
                            return std::find(key.use.begin(), key.use.end(), kNotSaid) == key.use.end();
                          }),
              "every layout says what it does with every key");

const RowKey* find_key(std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(), [&](const RowKey& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

KeyUse use_in(const RowKey& key, RowLayout layout) { return key.use[static_cast<size_t>(layout)]; }

/// Returns the key as it would be written in the table: lower case, without spaces around it, `_` within it.
std::string plain_spelling(std::string_view key) {
  auto text = strip(key);
  for (char& c : text) c = c == ' ' || c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool repeats(const JsonView& value, std::span<const std::string_view> parts) {
  if (!value.json().is_string()) return false;
  const auto text = strip(value.string());
  if (std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return strip(part) == text; })) return true;
  return value.key() == "text" && std::all_of(parts.begin(), parts.end(), [&](std::string_view part) {
           return text.find(strip(part)) != text.npos;
         });
}

constexpr std::string_view kRemedy = "rename it, or name it in data.files.ignore (evaluate and tokenize: --ignore)";

/// Checks a value under a known key that is spelled otherwise than in the table, so that nothing reads it.
void check_misspelt(const JsonView& value, const RowKey& key, RowLayout layout) {
  const auto use = use_in(key, layout);
  value.require(use == kGroup || use == kLost, " would be lost: the key that is read is \"", key.name, "\"; ", kRemedy);
}

/// Checks a value under a known key.
void check_known(const JsonView& value, const RowKey& key, RowLayout layout, std::span<const std::string_view> parts) {
  const auto use = use_in(key, layout);
  value.require(use != kLost || repeats(value, parts), " would be lost: this format does not read it; ", kRemedy);
  value.require(use != kGroup || !value.json().is_boolean(), " is ", shown(value.json()),
                ": rows with unwanted answers are not read; ", kRemedy);
}

}  // namespace

std::vector<std::string_view> known_row_keys() {
  std::vector<std::string_view> names;
  for (const auto& key : kKeys) names.push_back(key.name);
  return names;
}

KeyUse use_of(std::string_view key, RowLayout layout) {
  const auto* known = find_key(key);
  EK_CHECK(known != nullptr, kInternal, "no format knows the key ", key);
  return use_in(*known, layout);
}

std::vector<std::string_view> keys_with(KeyUse use, RowLayout layout) {
  std::vector<std::string_view> names;
  for (const auto& key : kKeys)
    if (use_in(key, layout) == use) names.push_back(key.name);
  return names;
}

bool says_nothing(const Json& value) { return value.empty() || value == ""; }

void check_nothing_lost(const JsonView& row, RowLayout layout, std::span<const std::string_view> parts,
                        std::string_view label_field) {
  for (const auto& value : row.members()) {
    if (says_nothing(value.json()) || value.key() == label_field) continue;
    const auto* key = find_key(plain_spelling(value.key()));
    if (key == nullptr) continue;
    if (key->name != value.key()) check_misspelt(value, *key, layout);
    check_known(value, *key, layout, parts);
  }
}

void check_prompt_alone(const JsonView& line) {
  for (const auto& value : line.members()) {
    const auto* key = find_key(plain_spelling(value.key()));
    if (key == nullptr || says_nothing(value.json())) continue;
    const auto use = use_in(*key, RowLayout::kPromptCompletion);
    value.require(use != kContext && use != kSystem && use != kHistory && use != kTemplate,
                  " would be lost: of such a line the prompt alone is read");
  }
}

std::optional<JsonView> only_value(const JsonView& row, KeyUse use, RowLayout layout) {
  std::optional<JsonView> found;
  for (const auto& key : keys_with(use, layout)) {
    const auto value = row.find(key);
    if (!value || says_nothing(value->json())) continue;
    value->require(!found || found->json() == value->json(), " says something else than ",
                   found ? found->key() : std::string(), ": a row has one of the two");
    if (!found) found = value;
  }
  return found;
}

}  // namespace evenkeel::data
