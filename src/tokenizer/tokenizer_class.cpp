#include "tokenizer/tokenizer_class.h"

#include <algorithm>
#include <array>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::tokenizer {
namespace {

struct ClassName {
  std::string_view name;
  TokenizerClass kind;
};
constexpr std::array kClassNames = {ClassName{"TokenizersBackend", TokenizerClass::kAsWritten},
                                    ClassName{"PreTrainedTokenizer", TokenizerClass::kAsWritten},
                                    ClassName{"PythonBackend", TokenizerClass::kAsWritten},
                                    ClassName{"GPTNeoXTokenizer", TokenizerClass::kGptNeoX},
                                    ClassName{"GPT2Tokenizer", TokenizerClass::kGpt2},
                                    ClassName{"Qwen2Tokenizer", TokenizerClass::kQwen2},
                                    ClassName{"LlamaTokenizer", TokenizerClass::kLlama},
                                    ClassName{"GemmaTokenizer", TokenizerClass::kGemma}};

/// The class that transformers registers for a model type.
struct Registered {
  std::string_view model_type, name;
};
constexpr std::array kRegistered = {Registered{"olmo", "GPTNeoXTokenizer"},
                                    Registered{"olmoe", "GPTNeoXTokenizer"},
                                    Registered{"gpt_neox", "GPTNeoXTokenizer"},
                                    Registered{"gpt2", "GPT2Tokenizer"},
                                    Registered{"phi", "GPT2Tokenizer"},
                                    Registered{"qwen2", "Qwen2Tokenizer"},
                                    Registered{"qwen2_moe", "Qwen2Tokenizer"},
                                    Registered{"qwen3", "Qwen2Tokenizer"},
                                    Registered{"qwen3_moe", "Qwen2Tokenizer"},
                                    Registered{"qwen3_next", "Qwen2Tokenizer"},
                                    Registered{"gemma", "GemmaTokenizer"},
                                    Registered{"gemma2", "GemmaTokenizer"},
                                    Registered{"gemma3_text", "GemmaTokenizer"},
                                    Registered{"olmo2", "TokenizersBackend"},
                                    Registered{"olmo3", "TokenizersBackend"},
                                    Registered{"flex_olmo", "TokenizersBackend"},
                                    Registered{"mixtral", "TokenizersBackend"},
                                    Registered{"mistral", "TokenizersBackend"},
                                    Registered{"granite", "TokenizersBackend"},
                                    Registered{"granitemoe", "TokenizersBackend"},
                                    Registered{"granitemoeshared", "TokenizersBackend"},
                                    Registered{"granitemoehybrid", "TokenizersBackend"},
                                    Registered{"glm4_moe", "TokenizersBackend"},
                                    Registered{"phi3", "TokenizersBackend"},
                                    Registered{"phimoe", "TokenizersBackend"}};
/// Model types whose folders often name a wrong class, so that transformers uses the registered one.
constexpr std::array<std::string_view, 3> kRegisteredCounts = {"qwen2", "phi3", "phimoe"};

constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kMetaspace = "\u2581";

std::string without_fast(std::string name) {
  if (name == "PreTrainedTokenizerFast") return "TokenizersBackend";
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

std::string_view registered_for(std::string_view model_type) {
  for (const auto& one : kRegistered)
    if (one.model_type == model_type) return one.name;
  return "";
}

std::optional<TokenizerClass> class_named(std::string_view name) {
  for (const auto& one : kClassNames)
    if (one.name == name) return one.kind;
  return std::nullopt;
}

/// Returns tokenizer_class of tokenizer_config.json, else of config.json.
std::optional<JsonView> given_class(const JsonView& config, const JsonView& model) {
  const auto given = config.find("tokenizer_class");
  return given ? given : model.find("tokenizer_class");
}

/// Returns true if the file contains "ByteLevel". transformers then reads a folder of class LlamaTokenizer as
/// byte-level.
bool names_byte_level(const fs::path& file) {
  return path_exists(file) && read_file(file, JsonLimits().bytes).find("\"ByteLevel\"") != std::string::npos;
}

Json byte_level(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"use_regex", use_regex}};
}

Json qwen2_words(bool add_prefix_space) {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kQwen2Words}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(add_prefix_space, false)}}};
}

Json replace(const char* what, const char* content) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", content}};
}

Json text_decoder(bool strips) {
  auto steps = Json::array({replace(kMetaspace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (strips) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

void set_llama(const JsonView& config, Json& tokenizer) {
  const bool prefix = config.flag_or("add_prefix_space", true), legacy = config.flag_or("legacy", false);
  const char* scheme = !prefix ? "never" : legacy ? "always" : "first";
  tokenizer["normalizer"] = nullptr;
  tokenizer["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", kMetaspace}, {"prepend_scheme", scheme}, {"split", false}};
  tokenizer["decoder"] = text_decoder(prefix);
}

void set_gemma(Json& tokenizer) {
  tokenizer["normalizer"] = replace(" ", kMetaspace);
  tokenizer["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}};
  tokenizer["decoder"] = text_decoder(false);
}

void set_byte_level(TokenizerClass kind, const JsonView& config, Json& tokenizer) {
  const bool prefix = config.flag_or("add_prefix_space", false);
  tokenizer["normalizer"] = kind == TokenizerClass::kGpt2 ? Json() : Json{{"type", "NFC"}};
  tokenizer["pre_tokenizer"] = kind == TokenizerClass::kQwen2 ? qwen2_words(prefix) : byte_level(prefix, true);
  tokenizer["decoder"] = {{"type", "ByteLevel"}};
  if (kind == TokenizerClass::kGptNeoX) tokenizer["post_processor"] = nullptr;
}

/// Builds the model section: the file's vocabulary and merges with the options of the class.
void set_model(TokenizerClass kind, const std::optional<std::string>& unk_token, Json& model) {
  const bool text = kind == TokenizerClass::kLlama || kind == TokenizerClass::kGemma;
  model = {{"type", "BPE"},
           {"vocab", std::move(model["vocab"])},
           {"merges", std::move(model["merges"])},
           {"fuse_unk", text},
           {"byte_fallback", text},
           {"ignore_merges", false}};
  if (kind == TokenizerClass::kGemma) model["unk_token"] = unk_token.value_or("None");
}

}  // namespace

TokenizerClass tokenizer_class_of(const JsonView& config, const JsonView& model, const fs::path& file) {
  const auto given = given_class(config, model);
  const auto model_type = model.string_or("model_type", "");
  const auto registered = registered_for(model_type);
  if (!given) return class_named(registered).value_or(TokenizerClass::kAsWritten);
  auto name = without_fast(given->string());
  const bool registered_counts =
      std::find(kRegisteredCounts.begin(), kRegisteredCounts.end(), model_type) != kRegisteredCounts.end();
  if (name == "LlamaTokenizer" && !registered_counts && names_byte_level(file)) return TokenizerClass::kAsWritten;
  if (!registered.empty() && name != registered && (registered == "TokenizersBackend" || registered_counts))
    name = registered;
  const auto kind = class_named(name);
  if (!kind) {
    std::vector<std::string_view> names;
    for (const auto& one : kClassNames) names.push_back(one.name);
    given->refuse(" is ", shown(given->json()), ", supported: ", join(names));
  }
  return *kind;
}

std::vector<DefaultToken> default_tokens(TokenizerClass kind) {
  constexpr std::string_view kEnd = "<|endoftext|>";
  switch (kind) {
    case TokenizerClass::kGptNeoX:
      return {{"bos_token", kEnd}, {"eos_token", kEnd}, {"unk_token", kEnd}, {"pad_token", "<|padding|>"}};
    case TokenizerClass::kGpt2:
      return {{"bos_token", kEnd}, {"eos_token", kEnd}, {"unk_token", kEnd}};
    case TokenizerClass::kQwen2:
      return {{"eos_token", kEnd}, {"unk_token", kEnd}, {"pad_token", kEnd}};
    case TokenizerClass::kLlama:
      return {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    case TokenizerClass::kGemma:
      return {{"bos_token", "<bos>"},
              {"eos_token", "<eos>"},
              {"unk_token", "<unk>"},
              {"pad_token", "<pad>"},
              {"mask_token", "<mask>"}};
    default:
      return {};
  }
}

void apply_class(TokenizerClass kind, const JsonView& config, const std::optional<std::string>& unk_token,
                 Json& tokenizer) {
  if (kind == TokenizerClass::kAsWritten) return;
  const auto type = tokenizer["model"].is_object() ? tokenizer["model"].value("type", Json("BPE")) : Json();
  EK_CHECK(type == "BPE", kData, "model.type is ", shown(type), ", the folder's tokenizer_class needs BPE");
  set_model(kind, unk_token, tokenizer["model"]);
  tokenizer["added_tokens"] = Json::array();
  if (kind == TokenizerClass::kLlama)
    set_llama(config, tokenizer);
  else if (kind == TokenizerClass::kGemma)
    set_gemma(tokenizer);
  else
    set_byte_level(kind, config, tokenizer);
}

}  // namespace evenkeel::tokenizer
