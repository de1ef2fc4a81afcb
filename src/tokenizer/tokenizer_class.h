/// \file  Which of transformers' tokenizer classes a model's folder is read with, and what that class makes of
/// tokenizer.json: the classes of one model family take its vocabulary and merges alone and set the rest themselves, as
/// transformers 5 does. Version 4 takes tokenizer.json as it is, whatever the class.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel {

/// A special token that a class has where no file of the folder names one.
struct DefaultToken {
  std::string_view name, content;
};

enum class TokenizerClass { kAsWritten, kGptNeoX, kGpt2, kQwen2, kLlama, kGemma };

/// \param config  tokenizer_config.json; \param model  config.json; \param file  tokenizer.json
/// \throws kData naming the class that is not supported
TokenizerClass tokenizer_class_of(const JsonView& config, const JsonView& model, const std::filesystem::path& file);

std::vector<DefaultToken> default_tokens(TokenizerClass kind);

/// Sets model options, normalizer, pre-tokenizer, decoder and post-processor of a tokenizer.json as the class does, and
/// takes its added tokens away.
/// \throws kData  a model that the class cannot take, or a key that it cannot follow
void apply_class(TokenizerClass kind, const JsonView& config, const std::optional<std::string>& unk_token,
                 Json& tokenizer);

}  // namespace evenkeel
