/// \file  Reads the tokenizer files of a model's folder and combines them as AutoTokenizer of transformers 5 does:
/// tokenizer.json, tokenizer_config.json, special_tokens_map.json, added_tokens.json, and config.json for the
/// tokenizer's class.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/plain/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer_class.h"

namespace evenkeel::tokenizer {

/// The tokenizer files of one folder.
class TokenizerFolder {
 public:
  /// Selects what is read.
  /// - kTokenizer: all files.
  /// - kNames: the files that name special tokens, without the content of tokenizer.json.
  enum class Purpose { kTokenizer, kNames };
  /// Reads the files of the folder; missing files count as empty. \throws kData with the file and key of what is
  /// malformed or unsupported.
  explicit TokenizerFolder(const std::filesystem::path& folder, Purpose purpose = Purpose::kTokenizer);

  /// Returns pairs of a name and the token's text, in transformers' order: bos_token, eos_token, ..., then names that
  /// only this folder uses.
  std::vector<std::pair<std::string, std::string>> named_tokens() const;
  /// Returns tokenizer.json as modified by the tokenizer's class. The content is moved out: call it once, after all
  /// other functions. \throws kData.
  Json take_tokenizer();
  /// Returns the lists of tokens to be added to tokenizer.json, in the order in which they are added. The first list
  /// holds the added and special tokens of all files. Qwen2's class has a second list: the special tokens again,
  /// without their flags. AddedToken::id is -1 if no file gives an id.
  std::vector<std::vector<AddedToken>> additions() const;
  /// Returns true if special tokens in a text are encoded like other text.
  bool splits_special_tokens() const { return config_.view().flag_or("split_special_tokens", false); }

 private:
  /// A JSON file; an empty object if the file is missing.
  struct Document {
    std::string origin;
    Json json = Json::object();
    JsonView view() const { return {json, origin}; }
    bool contains(std::string_view key) const { return json.contains(key); }
  };
  /// A token as a file gives it: the text alone, or with flags.
  struct Given {
    AddedToken token;
    bool has_flags = false;
  };
  using Named = std::vector<std::pair<std::string, Given>>;

  static bool is_same(const Given& a, const Given& b);
  static Document read(const std::filesystem::path& file);
  void check_config() const;
  std::optional<Given> from_config(const JsonView& json) const;
  Given from_map(const JsonView& json) const;
  std::optional<Given> standard_token(const std::string& name) const;
  void read_named();
  void read_own_names(Named& own) const;
  void read_extras();
  void read_extra_list(const JsonView& list, bool map);
  void read_decoder();
  void read_legacy_decoder();
  void decode_as(int64_t id, AddedToken token);
  void take_flags();

  std::filesystem::path folder_;
  Document config_, map_, added_, model_, file_;
  TokenizerClass class_ = TokenizerClass::kAsWritten;
  Named named_;
  std::vector<Given> extras_;
  std::vector<AddedToken> decoder_;  ///< added tokens that the files list, by ascending id
  std::vector<AddedToken> listed_;   ///< these tokens in the order in which they were read
};

}  // namespace evenkeel::tokenizer
