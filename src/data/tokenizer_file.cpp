#include "data/tokenizer_file.h"

#include <unordered_set>

#include "base/log.h"

namespace evenkeel {
namespace {

constexpr int64_t kLargestId = int64_t{1} << 22;  // tables are as long as the largest id

/// `json[key]`, or null when it is not there.
const Json& at(const Json& json, const char* key) {
  static const Json null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

bool is_empty_text(const Json& json) {
  return json.is_null() || (json.is_string() && json.get_ref<const std::string&>().empty());
}

bool is_off(const Json& json) { return json.is_null() || json == false || json == 0; }

std::string text_of(const Json& json, std::string_view origin) {
  EK_CHECK(json.is_string(), kData, origin, " is ", json.type_name(), ", expected a string");
  return json.get<std::string>();
}

int64_t id_of(const Json& json, std::string_view origin) {
  const bool good = json.is_number_integer() && json >= 0 && json <= kLargestId;
  EK_CHECK(good, kData, origin, " is ", json.dump(), ", expected an id from 0 to ", kLargestId);
  return json.get<int64_t>();
}

bool flag_of(const Json& json, const char* key, std::string_view origin) {
  const auto& value = at(json, key);
  EK_CHECK(value.is_null() || value.is_boolean(), kData, origin, ".", key, " is ", value.dump(),
           ", expected true or false");
  return value.is_boolean() && value.get<bool>();
}

/// A flag that the library does not load a file without.
bool required_flag(const Json& json, const char* key, std::string_view origin) {
  EK_CHECK(!at(json, key).is_null(), kData, origin, ".", key, " is missing, expected true or false");
  return flag_of(json, key, origin);
}

std::string type_of(const Json& json, std::string_view origin) {
  EK_CHECK(json.is_object(), kData, origin, " is ", json.type_name(), ", expected an object");
  return text_of(at(json, "type"), concat(origin, ".type"));
}

void read_vocabulary(const Json& json, TokenizerFile& out) {
  EK_CHECK(json.is_object(), kData, "model.vocab is ", json.type_name(), ", expected an object of token: id");
  std::unordered_set<int64_t> seen;
  out.vocabulary.reserve(json.size());
  for (const auto& [token, id] : json.items()) {
    const int64_t value = id_of(id, "model.vocab[\"" + token + "\"]");
    EK_CHECK(seen.insert(value).second, kData, "model.vocab gives id ", value, " to two tokens, one is \"", token,
             "\"");
    out.vocabulary.emplace(token, value);
  }
}

/// A merge is a pair ["a", "b"] or, in older files, one string "a b".
std::pair<std::string, std::string> merge_of(const Json& json, size_t rank) {
  const auto origin = [rank] { return concat("model.merges[", rank, "]"); };
  if (json.is_array() && json.size() == 2) return {text_of(json[0], origin()), text_of(json[1], origin())};
  EK_CHECK(json.is_string(), kData, origin(), " is ", json.dump(), ", expected \"a b\" or [\"a\", \"b\"]");
  const auto& line = json.get_ref<const std::string&>();
  const size_t gap = line.find(' ');
  const bool two = gap != std::string::npos && line.find(' ', gap + 1) == std::string::npos;
  EK_CHECK(two, kData, origin(), " is \"", line, "\", expected two tokens with a space between");
  return {line.substr(0, gap), line.substr(gap + 1)};
}

void read_merges(const Json& json, TokenizerFile& out) {
  EK_CHECK(json.is_array(), kData, "model.merges is ", json.type_name(), ", expected an array");
  out.merges.reserve(json.size());
  for (size_t rank = 0; rank < json.size(); ++rank) {
    if (json[rank].is_string() && json[rank].get_ref<const std::string&>().starts_with("#version")) continue;
    out.merges.push_back(merge_of(json[rank], rank));
  }
}

void read_word_piece(const Json& json, TokenizerFile& out) {
  const auto& longest = at(json, "max_input_chars_per_word");
  EK_CHECK(longest.is_number_integer() && longest >= 0, kData, "model.max_input_chars_per_word is ", longest.dump(),
           ", expected a whole number, 0 or more");
  out.word_piece = {.unk_token = text_of(at(json, "unk_token"), "model.unk_token"),
                    .prefix = text_of(at(json, "continuing_subword_prefix"), "model.continuing_subword_prefix"),
                    .max_characters = longest.get<int64_t>()};
  read_vocabulary(at(json, "vocab"), out);
}

void read_bpe(const Json& json, TokenizerFile& out) {
  EK_CHECK(is_off(at(json, "dropout")), kData, "model.dropout is ", at(json, "dropout").dump(), ", allowed: null");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    EK_CHECK(is_empty_text(at(json, affix)), kData, "model.", affix, " is ", at(json, affix).dump(),
             ", allowed: empty");
  if (!at(json, "unk_token").is_null()) out.bpe.unk_token = text_of(at(json, "unk_token"), "model.unk_token");
  out.bpe.fuse_unk = flag_of(json, "fuse_unk", "model");
  out.bpe.ignore_merges = flag_of(json, "ignore_merges", "model");
  EK_CHECK(!flag_of(json, "byte_fallback", "model"), kData, "model.byte_fallback is true, allowed: false");
  read_vocabulary(at(json, "vocab"), out);
  read_merges(at(json, "merges"), out);
}

void read_model(const Json& json, TokenizerFile& out) {
  EK_CHECK(json.is_object(), kData, "model is ", json.type_name(), ", expected an object");
  const auto type = at(json, "type").is_null() ? "BPE" : type_of(json, "model");
  EK_CHECK(type == "BPE" || type == "WordPiece", kData, "model.type is \"", type, "\", allowed: BPE, WordPiece");
  type == "BPE" ? read_bpe(json, out) : read_word_piece(json, out);
}

AddedToken added_of(const Json& json, const std::string& origin) {
  EK_CHECK(json.is_object(), kData, origin, " is ", json.type_name(), ", expected an object");
  AddedToken token;
  token.id = id_of(at(json, "id"), origin + ".id");
  token.content = text_of(at(json, "content"), origin + ".content");
  token.single_word = flag_of(json, "single_word", origin);
  token.lstrip = flag_of(json, "lstrip", origin);
  token.rstrip = flag_of(json, "rstrip", origin);
  token.normalized = flag_of(json, "normalized", origin);
  token.special = flag_of(json, "special", origin);
  return token;
}

/// The id counts only for tokens of the vocabulary; others are numbered on from its size, as the library does when it
/// loads.
void read_added(const Json& json, std::string_view file, TokenizerFile& out) {
  if (json.is_null()) return;
  EK_CHECK(json.is_array(), kData, "added_tokens is ", json.type_name(), ", expected an array");
  std::unordered_map<std::string, size_t> index;
  auto next = static_cast<int64_t>(out.vocabulary.size());
  for (size_t i = 0; i < json.size(); ++i) {
    auto token = added_of(json[i], concat("added_tokens[", i, "]"));
    if (token.content.empty()) continue;
    const auto in_vocabulary = out.vocabulary.find(token.content);
    const auto before = index.find(token.content);
    const int64_t id = in_vocabulary != out.vocabulary.end() ? in_vocabulary->second
                       : before != index.end()               ? out.added[before->second].id
                                                             : next++;
    if (id != token.id)
      log::warning("[data] ", file, ": added token \"", token.content, "\" is listed with id ", token.id,
                   " but has id ", id);
    token.id = id;
    if (before != index.end())
      out.added[before->second] = std::move(token);
    else if (index.emplace(token.content, out.added.size()).second)
      out.added.push_back(std::move(token));
  }
}

BertNormalizer bert_normalizer(const Json& json, const std::string& origin) {
  BertNormalizer bert{.clean_text = required_flag(json, "clean_text", origin),
                      .handle_chinese_chars = required_flag(json, "handle_chinese_chars", origin),
                      .lowercase = required_flag(json, "lowercase", origin)};
  if (!at(json, "strip_accents").is_null()) bert.strip_accents = flag_of(json, "strip_accents", origin);
  return bert;
}

void read_normalizer(const Json& json, const std::string& origin, TokenizerFile& out) {
  if (json.is_null()) return;
  const auto type = type_of(json, origin);
  EK_CHECK(!out.bert, kData, origin, ": nothing may follow BertNormalizer");
  if (type == "NFC") {
    out.nfc = true;
    return;
  }
  if (type == "BertNormalizer") {
    out.bert = bert_normalizer(json, origin);
    return;
  }
  EK_CHECK(type == "Sequence", kData, origin, ".type is \"", type,
           "\", allowed: NFC, BertNormalizer, Sequence, or no normalizer");
  const auto& parts = at(json, "normalizers");
  EK_CHECK(parts.is_array(), kData, origin, ".normalizers is ", parts.type_name(), ", expected an array");
  for (size_t i = 0; i < parts.size(); ++i) read_normalizer(parts[i], concat(origin, ".normalizers[", i, "]"), out);
}

TemplatePiece special_piece(const Json& json, const std::string& origin) {
  EK_CHECK(json.is_array() && json.size() == 2, kData, origin, " is ", json.dump(), ", expected [token, id]");
  return {false, {id_of(json[1], origin + "[1]")}};
}

TemplatePiece template_piece(const Json& json, const Json& specials, const std::string& origin) {
  if (const auto& sequence = at(json, "Sequence"); sequence.is_object()) {
    EK_CHECK(at(sequence, "id") == "A", kData, origin, ".Sequence.id is ", at(sequence, "id").dump(),
             ", allowed: \"A\"");
    return {true, {}};
  }
  const auto& special = at(json, "SpecialToken");
  EK_CHECK(special.is_object(), kData, origin, " is ", json.dump(), ", expected Sequence or SpecialToken");
  const auto name = text_of(at(special, "id"), origin + ".SpecialToken.id");
  const auto& ids = at(at(specials, name.c_str()), "ids");
  EK_CHECK(ids.is_array(), kData, origin, ": \"", name, "\" has no ids in special_tokens");
  TemplatePiece piece;
  for (const auto& id : ids) piece.ids.push_back(id_of(id, origin));
  return piece;
}

Template read_template(const Json& json, const std::string& origin) {
  const auto &single = at(json, "single"), &specials = at(json, "special_tokens");
  EK_CHECK(single.is_array(), kData, origin, ".single is ", single.type_name(), ", expected an array");
  EK_CHECK(specials.is_object(), kData, origin, ".special_tokens is ", specials.type_name(), ", expected an object");
  Template out;
  for (size_t i = 0; i < single.size(); ++i)
    out.push_back(template_piece(single[i], specials, concat(origin, ".single[", i, "]")));
  return out;
}

void read_post_processor(const Json& json, const std::string& origin, TokenizerFile& out) {
  if (json.is_null()) return;
  const auto type = type_of(json, origin);
  if (type == "ByteLevel") return;  // trims offsets only
  if (type == "TemplateProcessing") {
    out.templates.push_back(read_template(json, origin));
    return;
  }
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    out.templates.push_back(
        {special_piece(at(json, "cls"), origin + ".cls"), {true, {}}, special_piece(at(json, "sep"), origin + ".sep")});
    return;
  }
  EK_CHECK(type == "Sequence", kData, origin, ".type is \"", type,
           "\", allowed: ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence");
  const auto& parts = at(json, "processors");
  EK_CHECK(parts.is_array(), kData, origin, ".processors is ", parts.type_name(), ", expected an array");
  for (size_t i = 0; i < parts.size(); ++i) read_post_processor(parts[i], concat(origin, ".processors[", i, "]"), out);
}

void read_decoder(const Json& json, TokenizerFile& out) {
  out.decoder = TokenDecoder::kNone;
  if (json.is_null()) return;
  const auto type = type_of(json, "decoder");
  EK_CHECK(type == "ByteLevel" || type == "WordPiece", kData, "decoder.type is \"", type,
           "\", allowed: ByteLevel, WordPiece");
  out.decoder = type == "ByteLevel" ? TokenDecoder::kByteLevel : TokenDecoder::kWordPiece;
  if (out.decoder == TokenDecoder::kByteLevel) return;
  out.piece_prefix = text_of(at(json, "prefix"), "decoder.prefix");
  out.cleanup = required_flag(json, "cleanup", "decoder");
}

/// Words of WordPiece are those of BERT, words of BPE those of a byte-level split.
void check_words(const TokenizerFile& out) {
  const auto& json = out.pre_tokenizer;
  const bool bert = json.is_object() && at(json, "type") == "BertPreTokenizer";
  EK_CHECK(!out.word_piece || bert, kData, "pre_tokenizer is ",
           json.is_object() ? at(json, "type").dump() : json.dump(), ", allowed with WordPiece: BertPreTokenizer");
}

TokenizerFile read_parts(const Json& json, std::string_view file) {
  EK_CHECK(json.is_object(), kData, "the file holds ", json.type_name(), ", expected an object");
  const auto& version = at(json, "version");
  EK_CHECK(version.is_null() || version == "1.0", kData, "version is ", version.dump(), ", allowed: \"1.0\"");
  for (const char* setting : {"truncation", "padding"})
    if (!at(json, setting).is_null())
      log::warning("[data] ", file, ": ", setting, " is ignored, texts are always encoded whole");
  TokenizerFile out;
  read_model(at(json, "model"), out);
  read_added(at(json, "added_tokens"), file, out);
  read_normalizer(at(json, "normalizer"), "normalizer", out);
  read_post_processor(at(json, "post_processor"), "post_processor", out);
  read_decoder(at(json, "decoder"), out);
  out.pre_tokenizer = at(json, "pre_tokenizer");
  check_words(out);
  return out;
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& file) {
  const auto json = load_json(file, kData);
  return read_parts(json, file.string());
}

}  // namespace evenkeel
