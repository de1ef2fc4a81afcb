#include "tokenizer/tokenizer_folder.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::tokenizer {
namespace {

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kMapFile = "special_tokens_map.json";
constexpr const char* kAddedFile = "added_tokens.json";
constexpr int64_t kMostId = int64_t{1} << 22;
constexpr std::array<std::string_view, 7> kStandardNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                            "pad_token", "cls_token", "mask_token"};
// Keys that make transformers load a tokenizer from elsewhere, or change it in an unsupported way.
constexpr std::array<std::string_view, 13> kRefusedKeys = {
    "auto_map",
    "fast_tokenizer_files",
    "fix_mistral_regex",
    "gguf_file",
    "init_inputs",
    "merges",
    "post_processor",
    "tokenizer_object",
    "tokenizer_padding",
    "tokenizer_truncation",
    "vocab",
    "model_specific_special_tokens",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"};

bool is_standard(std::string_view name) {
  return std::find(kStandardNames.begin(), kStandardNames.end(), name) != kStandardNames.end();
}

bool is_own_name(std::string_view key) { return key.ends_with("_token") && !is_standard(key); }

/// Reads an added token: `content` and flags. Other keys than those of transformers' AddedToken are errors.
AddedToken token_with_flags(const JsonView& json, std::optional<bool> special) {
  constexpr std::array<std::string_view, 7> kKeys = {"content",    "single_word", "lstrip", "rstrip",
                                                     "normalized", "special",     "__type"};
  for (const auto& member : json.object().members())
    member.require(std::find(kKeys.begin(), kKeys.end(), member.key()) != kKeys.end(), " is no key of a token");
  AddedToken token{.id = -1, .content = json.at("content").string()};
  token.special = special.value_or(json.flag_or("special", false));
  token.single_word = json.flag_or("single_word", false);
  token.lstrip = json.flag_or("lstrip", false);
  token.rstrip = json.flag_or("rstrip", false);
  token.normalized = json.flag_or("normalized", !token.special);
  return token;
}

AddedToken special_token(std::string content) {
  return {.id = -1, .content = std::move(content), .normalized = false, .special = true};
}

/// Returns the keys in the order of the file, in which new tokens get their ids.
std::vector<std::string> ordered_keys(const fs::path& file) {
  std::vector<std::string> keys;
  if (!path_exists(file)) return keys;
  const auto json = load_json<OrderedJson>(file);
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

template <typename Named, typename Value>
void assign(Named& named, const std::string& name, Value value) {
  for (auto& [known, given] : named)
    if (known == name) return void(given = std::move(value));
  named.emplace_back(name, std::move(value));
}

}  // namespace

TokenizerFolder::Document TokenizerFolder::read(const fs::path& file) {
  Document document{file.string()};
  if (path_exists(file)) document.json = load_json(file);
  document.view().object();
  return document;
}

TokenizerFolder::TokenizerFolder(const fs::path& folder, Purpose purpose)
    : folder_(folder),
      config_(read(folder / kConfigFile)),
      map_(read(folder / kMapFile)),
      added_(read(folder / kAddedFile)),
      model_(read(folder / "config.json")),
      file_{(folder / "tokenizer.json").string()} {
  if (purpose == Purpose::kTokenizer) file_ = read(file_.origin);
  check_config();
  // The key added_tokens_decoder contains everything.
  if (config_.contains("added_tokens_decoder")) map_.json = added_.json = Json::object();
  class_ = tokenizer_class_of(config_.view(), model_.view(), file_.origin);
  read_named();
  read_extras();
  config_.contains("added_tokens_decoder") ? read_decoder() : read_legacy_decoder();
  take_flags();
}

void TokenizerFolder::check_config() const {
  const auto config = config_.view();
  for (const auto& key : kRefusedKeys)
    if (const auto value = config.find(key))
      value->require(value->json() == false || (value->json().is_structured() && value->json().empty()), " is ",
                     shown(value->json()), ", which is not supported");
  for (const auto& member : map_.view().members()) {
    const auto& key = member.key();
    const bool known = key.ends_with("_token") || key == "additional_special_tokens" || key == "extra_special_tokens";
    member.require(known, " is no special token");
  }
}

/// Reads a text, or an object that transformers' save_pretrained marked as a token; null gives no token.
std::optional<TokenizerFolder::Given> TokenizerFolder::from_config(const JsonView& json) const {
  if (json.json().is_null()) return std::nullopt;
  if (!json.json().is_object()) return Given{special_token(json.string())};
  json.require(json.json().value("__type", Json()) == "AddedToken", " is ", shown(json.json()),
               ", expected a text or an object with \"__type\": \"AddedToken\"");
  return Given{token_with_flags(json, std::nullopt), true};
}

TokenizerFolder::Given TokenizerFolder::from_map(const JsonView& json) const {
  if (!json.json().is_object()) return {special_token(json.string())};
  return {token_with_flags(json, true), true};
}

std::optional<TokenizerFolder::Given> TokenizerFolder::standard_token(const std::string& name) const {
  if (map_.contains(name)) {
    const auto value = map_.view().at(name);
    return value.json().is_null() ? std::nullopt : std::optional(from_map(value));
  }
  if (config_.contains(name)) return from_config(config_.view().at(name));
  for (const auto& one : default_tokens(class_)) {
    if (one.name != name) continue;
    Given given{special_token(std::string(one.content))};
    given.token.by_class = true;
    return given;
  }
  return std::nullopt;
}

/// Reads the folder's own names: keys that end in _token, those with flags first, and an object of extra tokens.
void TokenizerFolder::read_own_names(Named& own) const {
  const auto keys = ordered_keys(config_.origin);
  for (const bool flags : {true, false}) {
    for (const auto& key : keys)
      if (const auto& value = config_.json.at(key); is_own_name(key) && (flags ? value.is_object() : value.is_string()))
        assign(own, key, *from_config(config_.view().at(key)));
    if (!flags) continue;
    for (const auto& key : ordered_keys(map_.origin))
      if (map_.contains(key) && is_own_name(key)) assign(own, key, from_map(map_.view().at(key)));
  }
}

void TokenizerFolder::read_named() {
  for (const auto& name : kStandardNames)
    if (auto given = standard_token(std::string(name))) named_.emplace_back(name, std::move(*given));
  read_own_names(named_);
}

void TokenizerFolder::read_extra_list(const JsonView& list, bool map) {
  if (list.json().is_object()) {
    for (const auto& member : list.members()) {
      auto given = map ? from_map(member) : from_config(member);
      member.require(given.has_value(), " is null, expected a token");
      assign(named_, member.key(), std::move(*given));
    }
    return;
  }
  for (const auto& item : list.items()) {
    auto given = map ? from_map(item) : from_config(item);
    item.require(given.has_value(), " is null, expected a token");
    extras_.push_back(std::move(*given));
  }
}

/// Reads extra_special_tokens, in older files additional_special_tokens.
void TokenizerFolder::read_extras() {
  const auto filled = [](const Document& document, const char* key) {
    return document.json.value(key, Json()).is_structured() && !document.json.at(key).empty();
  };
  const auto config = config_.view(), map = map_.view();
  const char* extra = "extra_special_tokens";
  const char* additional = "additional_special_tokens";
  const bool older = config_.contains(additional) && !filled(config_, extra);
  if (const auto list = config.find(older ? additional : extra)) read_extra_list(*list, false);
  const bool any = config_.contains(extra) || config_.contains(additional);
  if (const auto list = map.find(extra))
    read_extra_list(*list, true);
  else if (const auto others = map.find(additional); others && !any)
    read_extra_list(*others, false);
}

void TokenizerFolder::decode_as(int64_t id, AddedToken token) {
  token.id = id;
  listed_.push_back(token);
  for (auto& known : decoder_)
    if (known.id == id) return void(known = std::move(token));
  decoder_.push_back(std::move(token));
}

void TokenizerFolder::read_decoder() {
  for (const auto& member : config_.view().at("added_tokens_decoder").object().members()) {
    const Json id = Json::parse(member.key(), nullptr, /*allow_exceptions=*/false);
    member.require(id.is_number_unsigned() && id <= kMostId, ": the key is no id from 0 to ", kMostId);
    decode_as(id.get<int64_t>(), token_with_flags(member, std::nullopt));
  }
}

/// Reads added_tokens.json of older folders. Entries of tokenizer.json take precedence.
void TokenizerFolder::read_legacy_decoder() {
  std::set<std::string> special;
  for (const auto& [name, given] : named_) special.insert(given.token.content);
  for (const auto& given : extras_) special.insert(given.token.content);
  for (const auto& member : added_.view().members()) {
    AddedToken token{.content = member.key()};
    token.special = special.contains(member.key());
    token.normalized = !token.special;
    decode_as(member.integer(0, kMostId), std::move(token));
  }
  if (const auto added = file_.view().find("added_tokens"))
    for (const auto& item : added->items()) {
      auto entry = item.object().json();
      const int64_t id = item.at("id").integer(0, kMostId);
      entry.erase("id");
      decode_as(id, token_with_flags(JsonView(entry, item.place()), std::nullopt));
    }
}

/// Gives tokens with standard names the flags of the listed token with the same text.
void TokenizerFolder::take_flags() {
  std::stable_sort(decoder_.begin(), decoder_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (auto& [name, given] : named_)
    for (const auto& token : listed_)
      if (is_standard(name) && token.content == given.token.content) given = {token, true};
}

std::vector<std::pair<std::string, std::string>> TokenizerFolder::named_tokens() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, given] : named_) out.emplace_back(name, given.token.content);
  return out;
}

Json TokenizerFolder::take_tokenizer() {
  auto tokenizer = std::move(file_.json);
  std::optional<std::string> unk_token;
  for (const auto& [name, given] : named_)
    if (name == "unk_token") unk_token = given.token.content;
  try {
    apply_class(class_, config_.view(), unk_token, tokenizer);
  } catch (const Error& error) {
    throw std::string_view(error.what()).find(folder_.string()) == std::string_view::npos
        ? error.with_context(file_.origin)
        : error;
  }
  return tokenizer;
}

bool TokenizerFolder::is_same(const Given& a, const Given& b) {
  const auto flags = [](const Given& given) {
    const auto& token = given.token;
    return std::tuple(given.has_flags, token.content, token.single_word, token.lstrip, token.rstrip, token.normalized,
                      token.special);
  };
  return flags(a) == flags(b);
}

std::vector<std::vector<AddedToken>> TokenizerFolder::additions() const {
  std::set<std::string> present, names;
  for (const auto& [name, given] : named_) names.insert(given.token.content);
  if (class_ == TokenizerClass::kAsWritten)
    if (const auto added = file_.view().find("added_tokens"))
      for (const auto& item : added->items()) present.insert(item.at("content").string());
  std::vector<AddedToken> first, second;
  std::vector<Given> before;  // a token that is named twice with different flags is added twice
  for (auto token : decoder_) {
    token.special |= names.contains(token.content);
    present.insert(token.content);
    first.push_back(std::move(token));
  }
  const auto add = [&](const Given& given) {
    const auto alike = [&](const Given& other) { return is_same(given, other); };
    if (!present.contains(given.token.content) && std::none_of(before.begin(), before.end(), alike)) {
      first.push_back(given.token);
      first.back().special |= names.contains(given.token.content);
      before.push_back(given);
    }
    second.push_back(special_token(given.token.content));
  };
  for (const auto& [name, given] : named_) add(given);
  for (const auto& given : extras_) add(given);
  if (class_ != TokenizerClass::kQwen2) return {std::move(first)};
  return {std::move(first), std::move(second)};
}

}  // namespace evenkeel::tokenizer
