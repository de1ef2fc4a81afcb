#include "data/other_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/format/command_line.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "data/row_keys.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kTextBlanks = " \t\r\n", kTextMark = "\xEF\xBB\xBF";
constexpr size_t kHead = 4096;        // bytes in which the kind of a text shows
constexpr size_t kLongestPath = 100;  // in a line of Python; a longer path is left out, so that the message stays whole

/// A line of Python, or a command for a shell. In `code`, IN stands for the file and OUT for the file of JSON lines
/// that is made.
struct Conversion {
  std::string what, code;
  bool is_command = false;
};

constexpr std::string_view kWrite = ".to_json(OUT, orient=\"records\", lines=True, force_ascii=False)";

/// The Python package reads the file by itself (python/evenkeel_moe/_rows_command.py).
Conversion table(std::string_view what, std::string_view in = "IN") {
  return {std::string(what), concat("python3 -m evenkeel_moe rows ", in, " OUT"), true};
}

std::string pandas(std::string_view read) { return concat("import pandas; pandas.", read, kWrite); }

/// Calls a function that opens a compressed file.
std::string unpacked(std::string_view module, std::string_view open) {
  return concat("import ", module, ", shutil; shutil.copyfileobj(", open, "(IN), open(OUT, \"wb\"))");
}

std::string with_encoding(std::string_view encoding) {
  return concat("open(OUT, \"w\", encoding=\"utf-8\").write(open(IN, encoding=\"", encoding, "\").read())");
}

// --- recognised by their first bytes ---

struct Signature {
  std::string_view begin;
  Conversion is;
};

const std::vector<Signature>& signatures() {
  using namespace std::string_view_literals;
  static const std::vector<Signature> all = {
      {"\x1F\x8B", {"is compressed (gzip)", unpacked("gzip", "gzip.open")}},
      {"BZh", {"is compressed (bzip2)", unpacked("bz2", "bz2.open")}},
      {"\xFD"
       "7zXZ",
       {"is compressed (xz)", unpacked("lzma", "lzma.open")}},
      {"\x28\xB5\x2F\xFD",
       {"is compressed (zstd)",
        "import zstandard; zstandard.ZstdDecompressor().copy_stream(open(IN, \"rb\"), open(OUT, \"wb\"))"}},
      {"\x04\x22\x4D\x18", {"is compressed (lz4)", unpacked("lz4.frame", "lz4.frame.open")}},
      {"7z\xBC\xAF\x27\x1C", {"is an archive (7z)", "import py7zr; py7zr.SevenZipFile(IN).extractall()"}},
      {"PAR1", table("is a Parquet table")},
      {"ARROW1", table("is an Arrow table")},
      {"FEA1", table("is an Arrow table")},
      {"\xFF\xFF\xFF\xFF", table("is an Arrow stream")},
      {"Obj\x01",
       {"is an Avro table",
        "import fastavro, pandas; pandas.DataFrame(fastavro.reader(open(IN, \"rb\")))" + std::string(kWrite)}},
      {"\x89HDF", {"is an HDF5 file", pandas("read_hdf(IN)")}},
      {"\xD0\xCF\x11\xE0", {"is an Excel sheet", pandas("read_excel(IN, dtype=str, keep_default_na=False)")}},
      {"\x93NUMPY",
       {"is an array of NumPy",
        "import numpy, pandas; pandas.DataFrame(numpy.load(IN, allow_pickle=True).tolist())" + std::string(kWrite)}},
      {"\xFF\xFE\0\0"sv, {"is UTF-32 text", with_encoding("utf-32")}},
      {"\xFF\xFE", {"is UTF-16 text", with_encoding("utf-16")}},
      {"\xFE\xFF", {"is UTF-16 text", with_encoding("utf-16")}},
      {"version https://git-lfs", {"is a pointer of Git LFS, not the file itself", "git lfs pull"}}};
  return all;
}

/// Returns the name of the first table of an SQLite database.
std::string table_of(std::string_view bytes) {
  constexpr std::string_view kCreate = "CREATE TABLE ";
  const auto at = bytes.find(kCreate);
  if (at == bytes.npos) return "TABLE";
  const auto rest = bytes.substr(at + kCreate.size());
  const bool quoted = !rest.empty() && (rest.front() == '"' || rest.front() == '`');
  const auto end = quoted ? rest.find(rest.front(), 1) : rest.find_first_of(" (\n");
  return std::string(rest.substr(quoted ? 1 : 0, end == rest.npos ? 0 : end - (quoted ? 1 : 0)));
}

Conversion zip_file(std::string_view bytes) {
  if (bytes.find("xl/") != bytes.npos || bytes.find("opendocument.spreadsheet") != bytes.npos)
    return {"is an Excel sheet", pandas("read_excel(IN, dtype=str, keep_default_na=False)")};
  if (bytes.find(".npy") != bytes.npos)
    return {"is an archive of NumPy arrays",
            "import numpy, pandas; pandas.DataFrame(dict(numpy.load(IN, allow_pickle=True)))" + std::string(kWrite)};
  return {"is an archive (zip)", "import zipfile; zipfile.ZipFile(IN).extractall()"};
}

bool is_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5 && bytes.back() == '.';
}

/// Recognises text in UTF-16 without a byte order mark: every other byte of its first letters is zero.
std::optional<Conversion> unmarked_utf16(std::string_view bytes) {
  if (bytes.size() < 4) return std::nullopt;
  if (bytes[0] != 0 && bytes[1] == 0 && bytes[2] != 0 && bytes[3] == 0)
    return Conversion{"is UTF-16 text", with_encoding("utf-16-le")};
  if (bytes[0] == 0 && bytes[1] != 0 && bytes[2] == 0 && bytes[3] != 0)
    return Conversion{"is UTF-16 text", with_encoding("utf-16-be")};
  return std::nullopt;
}

std::optional<Conversion> of_bytes(std::string_view bytes) {
  if (bytes.starts_with("SQLite format 3"))
    return Conversion{"is an SQLite database", concat("import pandas, sqlite3; pandas.read_sql(\"SELECT * FROM ",
                                                      table_of(bytes), "\", sqlite3.connect(IN))", kWrite)};
  if (bytes.starts_with("PK\x03\x04")) return zip_file(bytes);
  if (bytes.starts_with("ORC") && bytes.size() > 3 && std::isprint(static_cast<unsigned char>(bytes[3])) == 0)
    return Conversion{"is an ORC table", pandas("read_orc(IN)")};
  if (is_pickle(bytes))
    return Conversion{"is a pickle (read one only if you trust it)",
                      "import pandas; pandas.DataFrame(pandas.read_pickle(IN))" + std::string(kWrite)};
  if (bytes.size() > 262 && bytes.substr(257, 5) == "ustar")
    return Conversion{"is an archive (tar)", "import tarfile; tarfile.open(IN).extractall()"};
  for (const auto& [begin, is] : signatures())
    if (bytes.starts_with(begin)) return is;
  return unmarked_utf16(bytes);
}

// --- recognised by their text ---

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string_view without_blanks_before(std::string_view text) {
  const auto first = text.find_first_not_of(kTextBlanks);
  return first == text.npos ? std::string_view() : text.substr(first);
}

/// Returns the character that separates the columns of a table in a text, or nothing.
std::optional<char> separator_of(std::string_view text, const std::string& extension) {
  const auto line = first_line(text);
  for (const char c : {'\t', ';', ','})
    if (line.find(c) != line.npos) return c;
  if (extension == ".tsv") return '\t';
  return extension == ".csv" ? std::optional(',') : std::nullopt;
}

std::optional<Conversion> of_text(std::string_view bytes, const std::string& extension) {
  auto text = bytes.substr(0, kHead);
  if (text.starts_with(kTextMark)) text.remove_prefix(kTextMark.size());
  text = without_blanks_before(text);
  if (text.empty()) return std::nullopt;
  if (text.starts_with("{'"))
    return Conversion{
        "is Python's text of dicts, not JSON",
        "import ast, json; open(OUT, \"w\").writelines(json.dumps(ast.literal_eval(line)) + \"\\n\" for line "
        "in open(IN))"};
  if (text.front() == '<') return Conversion{"is XML or HTML", pandas("read_xml(IN)")};
  if (text.front() == '{' || text.front() == '[') return std::nullopt;
  if (text.find("\n{") != text.npos) return std::nullopt;  // JSON lines, of which the first is not one
  const auto separator = separator_of(text, extension);
  return separator ? std::optional(table(*separator == '\t' ? "is TSV" : "is CSV")) : std::nullopt;
}

// --- messages ---

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

/// Returns the name of the file that the line makes, in the folder in which it is called.
std::string result_of(const fs::path& from) {
  auto stem = from.stem();
  if (stem.has_extension() && !is_folder(from)) stem = stem.stem();  // rows.jsonl.gz
  auto name = stem.string() + ".jsonl";
  return name == from.filename().string() ? stem.string() + "-rows.jsonl" : name;
}

[[noreturn]] void refuse(const fs::path& file, const Conversion& is) {
  const auto place = file.string().size() > kLongestPath ? file.filename().string() : file.string();
  const auto quoted = [&](const std::string& path) { return is.is_command ? shell_word(path) : Json(path).dump(); };
  const auto code = replaced(replaced(is.code, "OUT", quoted(result_of(file))), "IN", quoted(place));
  fail(kData, file.string(), ": ", is.what, ", allowed: JSON or JSON lines as text; convert it: ", code,
       is.is_command ? "; to rename columns add --columns prompt=COLUMN,completion=COLUMN" : "");
}

// --- tables in JSON ---

bool is_number_text(const std::string& key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

template <typename Test>
bool all_values(const Json& object, const Test& test) {
  return !object.empty() && std::all_of(object.begin(), object.end(), test);
}

bool has_known_key(const Json& object) {
  const auto known = known_row_keys();
  return std::any_of(known.begin(), known.end(), [&](std::string_view key) { return object.contains(key); });
}

bool has_number_keys(const Json& object) {
  if (!object.is_object() || object.empty()) return false;
  for (const auto& [key, value] : object.items())
    if (!is_number_text(key)) return false;
  return true;
}

/// Returns true for a list of other things than messages, so that an object of such lists is a table.
bool is_column(const Json& list) { return list.is_array() && !list.empty() && !list.front().is_object(); }

std::string read_json(std::string_view orient) {
  return pandas(concat("read_json(IN, ", orient, "dtype=False, convert_dates=False)"));
}

std::optional<Conversion> table_of_json(const Json& whole) {
  if (whole.is_array())
    return all_values(whole, [](const Json& row) { return row.is_array(); })
               ? std::optional(
                     Conversion{"holds rows that are lists, without keys",
                                "import json, pandas; pandas.DataFrame(json.load(open(IN)), columns=[\"prompt\", "
                                "\"completion\"])" +
                                    std::string(kWrite)})
               : std::nullopt;
  if (!whole.is_object()) return std::nullopt;
  if (whole.contains("columns") && whole.contains("data"))
    return Conversion{"is a table of pandas (orient=\"split\")", read_json("orient=\"split\", ")};
  if (has_known_key(whole) && all_values(whole, has_number_keys))
    return Conversion{"is a table by columns, as pandas' to_json() writes it", read_json("")};
  if (has_number_keys(whole) && all_values(whole, [](const Json& row) { return row.is_object(); }))
    return Conversion{"is a table of pandas (orient=\"index\")", read_json("orient=\"index\", ")};
  if (has_known_key(whole) && all_values(whole, is_column))
    return Conversion{"is an object of columns",
                      "import json, pandas; pandas.DataFrame(json.load(open(IN)))" + std::string(kWrite)};
  return std::nullopt;
}

// --- folders ---

/// Returns the name of a split in a folder of several, "train" if it is there.
std::string split_of(const fs::path& folder) {
  const auto entries = entries_of(folder);
  const auto found =
      std::find_if(entries.begin(), entries.end(), [](const fs::path& entry) { return is_folder(entry); });
  if (is_folder(folder / "train") || found == entries.end()) return "train";
  return shell_word(found->filename().string());
}

/// Returns true if the folder, or a folder in it, has files of tables.
bool holds_tables(const fs::path& folder, int depth = 0) {
  constexpr std::array<std::string_view, 5> kTables = {".parquet", ".arrow", ".csv", ".tsv", ".gz"};
  for (const auto& entry : entries_of(folder)) {
    if (std::find(kTables.begin(), kTables.end(), entry.extension().string()) != kTables.end()) return true;
    if (depth < 1 && is_folder(entry) && holds_tables(entry, depth + 1)) return true;
  }
  return false;
}

}  // namespace

void check_is_json_text(std::string_view bytes, const std::string& file) {
  auto is = of_bytes(bytes);
  if (!is) is = of_text(bytes, fs::path(file).extension().string());
  if (is) refuse(file, *is);
}

void check_is_not_table(const Json& whole, const std::string& file) {
  if (const auto is = table_of_json(whole)) refuse(file, *is);
}

bool is_saved_dataset(const fs::path& folder) {
  return path_exists(folder / "dataset_dict.json") ||
         (path_exists(folder / "dataset_info.json") && path_exists(folder / "state.json"));
}

void refuse_folder(const fs::path& folder) {
  if (path_exists(folder / "dataset_dict.json"))
    refuse(folder, table("is a folder of datasets.save_to_disk() with splits", "IN/" + split_of(folder)));
  if (is_saved_dataset(folder)) refuse(folder, table("is a folder of datasets.save_to_disk()"));
  if (holds_tables(folder))
    refuse(folder,
           {"is a folder of tables", "import datasets; datasets.load_dataset(IN, split=\"train\").to_json(OUT)"});
  fail(kData, folder.string(), " is a folder, allowed: files of rows, or a glob such as ", folder.string(), "/*.jsonl");
}

}  // namespace evenkeel::data
