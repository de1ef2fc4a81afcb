/// \file  What the files beside tokenizer.json say of a model's tokens: tokenizer_config.json, special_tokens_map.json,
/// added_tokens.json, and config.json for the tokenizer's class; put together as AutoTokenizer of transformers 5 does.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/plain/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer_class.h"

namespace evenkeel {

class TokenizerFolder {
 public:
  enum class Purpose { kTokenizer, kNames };  ///< names alone do not need tokenizer.json
  /// Reads the folder's files, those that are there.
  /// \throws kData with the file and key of what is malformed or not supported
  explicit TokenizerFolder(const std::filesystem::path& folder, Purpose purpose = Purpose::kTokenizer);

  /// bos_token, eos_token, ... and the names that the folder itself gives, with what they stand for, in transformers'
  /// order.
  std::vector<std::pair<std::string, std::string>> named_tokens() const;
  /// tokenizer.json as the tokenizer's class takes it; moved out, so to be called once, last. \throws kData
  Json take_tokenizer();
  /// Tokens that are added to it, one list after the other; an id stands where the folder says one, else -1.
  std::vector<std::vector<AddedToken>> additions() const;
  bool splits_special_tokens() const { return config_.view().flag_or("split_special_tokens", false); }

 private:
  struct Document {
    std::string origin;
    Json json = Json::object();
    JsonView view() const { return {json, origin}; }
    bool contains(std::string_view key) const { return json.contains(key); }
  };
  /// A token as a file names it: its text alone, or with flags.
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
  std::vector<AddedToken> decoder_;  ///< the added tokens that the files list, ids ascending
  std::vector<AddedToken> listed_;   ///< the same in the order they were read
};

/// The files beside config.json and tokenizer.json that say something of a folder's tokens, those that are there.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder);

}  // namespace evenkeel
