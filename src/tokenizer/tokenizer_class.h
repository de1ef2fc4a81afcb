/// \file  Determines which tokenizer class of transformers a model's folder is read with, and applies this class to
/// tokenizer.json. As in transformers 5, the classes of a model family take only the vocabulary and the merges from
/// tokenizer.json and define the rest themselves. (Version 4 takes tokenizer.json unchanged for all classes.)
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::tokenizer {

/// A special token that a class defines if no file of the folder does.
struct DefaultToken {
  std::string_view name, content;  ///< e.g. "eos_token" and "</s>"
};

/// The supported classes. kAsWritten takes tokenizer.json unchanged.
enum class TokenizerClass { kAsWritten, kGptNeoX, kGpt2, kQwen2, kLlama, kGemma };

/// Returns the class of a folder. tokenizer_class of `config` takes precedence over tokenizer_class of `model`. If
/// neither is given, `model_type` selects the class; an unknown type gives kAsWritten. `model_type` also replaces a
/// given class: for types that transformers reads with TokenizersBackend, such as mixtral, and for qwen2, phi3 and
/// phimoe, whose folders often name a wrong class.
/// \param config  tokenizer_config.json \param model  config.json
/// \param file  path of tokenizer.json. It is read only if the class is LlamaTokenizer and the type is not qwen2, phi3
/// or phimoe. The result is kAsWritten if the file contains "ByteLevel".
/// \throws if the class is not supported, with the error kind of the JsonView (`config` or `model`) that has its name
TokenizerClass tokenizer_class_of(const JsonView& config, const JsonView& model, const std::filesystem::path& file);

/// Returns the special tokens that the class defines by default; none for kAsWritten.
std::vector<DefaultToken> default_tokens(TokenizerClass kind);

/// Replaces the model options, normalizer, pre-tokenizer and decoder of `tokenizer` by those of the class, and removes
/// its added tokens. kGptNeoX also removes the post-processor. kAsWritten changes nothing.
/// \param config  tokenizer_config.json
/// \param unk_token  the unknown token that the folder's files name, if any
/// \throws kData if the model is not BPE; the error kind of `config` if a flag has the wrong type
void apply_class(TokenizerClass kind, const JsonView& config, const std::optional<std::string>& unk_token,
                 Json& tokenizer);

}  // namespace evenkeel::tokenizer
