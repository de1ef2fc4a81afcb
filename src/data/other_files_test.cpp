// Checks that files in other forms than JSON lines are named, with the line that converts them.
#include "data/other_files.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "data/row_files.h"

namespace evenkeel::data {
namespace {

using namespace std::string_view_literals;

class OtherFiles : public ::testing::Test {
 protected:
  std::string refused(std::string_view content, const std::string& name = "rows.bin") const {
    write_file_atomic(folder_.path() / name, content);
    return refused_path(folder_.path() / name);
  }
  std::string refused_path(const fs::path& path) const {
    return testing::refusal([&] { file_rows({.patterns = {path.string()}}); });
  }
  static void says(const std::string& refusal, std::initializer_list<std::string_view> words) {
    EXPECT_EQ(refusal.find("[data] "), 0u) << refusal;
    for (const auto word : words) EXPECT_NE(refusal.find(word), refusal.npos) << refusal << "\nlacks: " << word;
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(OtherFiles, BinaryFilesAreNamedByTheirFirstBytes) {
  says(refused("\x1F\x8B\x08\0"sv, "rows.jsonl.gz"),
       {"rows.jsonl.gz: is compressed (gzip), allowed: JSON", "gzip.open", "open(\"rows.jsonl\", \"wb\")"});
  says(refused("BZh91AY&SY"), {"(bzip2)", "bz2.open"});
  says(refused("\xFD"
               "7zXZ\0"sv),
       {"(xz)", "lzma.open"});
  says(refused("\x28\xB5\x2F\xFDx"), {"(zstd)", "zstandard"});
  says(refused("\x04\x22\x4D\x18x"), {"(lz4)"});
  says(refused("PAR1..PAR1", "rows.parquet"),
       {"is a Parquet table", "python3 -m evenkeel_moe rows ", "rows.parquet rows.jsonl; ", "--columns prompt="});
  says(refused("PAR1..PAR1", "my rows.parquet"), {"/my rows.parquet' 'my rows.jsonl'; "});
  says(refused("ARROW1\0\0"sv), {"is an Arrow table", "evenkeel_moe rows "});
  says(refused("\xFF\xFF\xFF\xFF\x10\0\0\0"sv), {"is an Arrow stream", "evenkeel_moe rows "});
  says(refused("PK\x03\x04..xl/workbook.xml"), {"is an Excel sheet", "read_excel"});
  says(refused("PK\x03\x04..prompt.npy"), {"is an archive of NumPy arrays", "numpy.load"});
  says(refused("PK\x03\x04..a.txt"), {"is an archive (zip)", "zipfile"});
  says(refused("\x93NUMPY\x01\0"sv), {"is an array of NumPy", "numpy.load"});
  says(refused("SQLite format 3\0...CREATE TABLE \"my rows\" (prompt)"sv), {"is an SQLite database", "FROM my rows"});
  says(refused("SQLite format 3\0...CREATE TABLE talks(prompt)"sv), {"SELECT * FROM talks\""});
  says(refused("\x80\x04\x95\x0c."), {"is a pickle", "read_pickle"});
  says(refused("version https://git-lfs.github.com/spec/v1\noid sha256:1"), {"pointer of Git LFS", "git lfs pull"});
}

TEST_F(OtherFiles, TextInOtherEncodingsIsNamed) {
  says(refused("\xFF\xFE{\0"sv), {"is UTF-16 text", "encoding=\"utf-16\""});
  says(refused("{\0\"\0a\0"sv), {"is UTF-16 text", "encoding=\"utf-16-le\""});
  says(refused("\0{\0\"\0a"sv), {"is UTF-16 text", "encoding=\"utf-16-be\""});
  says(refused("\xFF\xFE\0\0{\0\0\0"sv), {"is UTF-32 text"});
}

TEST_F(OtherFiles, SeparatedColumnsAreNamed) {
  says(refused("prompt,completion\na,b\n", "rows.csv"), {"rows.csv: is CSV", "rows.csv rows.jsonl; "});
  says(refused("\xEF\xBB\xBF\"prompt\";\"completion\"\n\"a\";\"b\"\n"), {"is CSV", "evenkeel_moe rows "});
  says(refused("prompt\tcompletion\na\tb\n", "rows.jsonl"), {"is TSV", "rows.jsonl rows-rows.jsonl; "});
  says(refused("text\nonly one column\n", "rows.csv"), {"is CSV"});
  says(refused("{'prompt': 'a', 'completion': 'b'}\n"), {"Python's text of dicts", "ast.literal_eval"});
  says(refused("<!DOCTYPE html><html>"), {"is XML or HTML"});
}

TEST_F(OtherFiles, TablesInJsonAreNamed) {
  says(refused(R"({"prompt":{"0":"a","1":"c"},"completion":{"0":"b","1":"d"}})", "rows.json"),
       {"is a table by columns, as pandas' to_json() writes it", "read_json(", "dtype=False"});
  says(refused(R"({"prompt":{"0":"a"},"completion":{"0":"b"}})"), {"is a table by columns"});
  says(refused(R"({"0":{"prompt":"a","completion":"b"}})"), {"orient=\"index\""});
  says(refused(R"({"columns":["prompt","completion"],"index":[0],"data":[["a","b"]]})"), {"orient=\"split\""});
  says(refused(R"({"prompt":["a","c"],"completion":["b","d"]})"), {"is an object of columns", "pandas.DataFrame("});
  says(refused(R"([["a","b"],["c","d"]])"), {"rows that are lists", "columns="});
}

TEST_F(OtherFiles, RowsOfListsAndObjectsAreNoTables) {
  const auto read = [&](std::string_view text) {
    write_file_atomic(folder_.path() / "rows.jsonl", text);
    return file_rows({.patterns = {(folder_.path() / "rows.jsonl").string()}}).rows.size();
  };
  EXPECT_EQ(read(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"), 1u);
  EXPECT_EQ(read(R"({"prompt":[{"role":"user","content":"a"}],"completion":[{"role":"assistant","content":"b"}]})"),
            1u);
}

TEST_F(OtherFiles, FoldersAreNamedByWhatTheyHold) {
  const auto saved = folder_.path() / "saved", both = folder_.path() / "both", tables = folder_.path() / "tables";
  for (const auto& folder : {saved, both, tables / "data"}) make_folders(folder);
  write_file_atomic(saved / "dataset_info.json", "{}");
  write_file_atomic(saved / "state.json", "{}");
  write_file_atomic(both / "dataset_dict.json", "{\"splits\": [\"train\"]}");
  write_file_atomic(tables / "data" / "train.parquet", "PAR1");
  says(refused_path(saved), {"datasets.save_to_disk()", "evenkeel_moe rows ", "saved saved.jsonl; "});
  says(refused_path(both), {"with splits", "both/train both.jsonl; "});
  make_folders(both / "validation set");
  says(refused_path(both), {"/both/'validation set' both.jsonl; "});
  says(refused_path(tables), {"is a folder of tables", "load_dataset("});
  says(testing::refusal([&] { with_files_of_folders(std::vector{saved.string()}); }), {"evenkeel_moe rows "});
  says(testing::refusal([&] { with_files_of_folders(std::vector{tables.string()}); }), {"load_dataset("});
  says(refused_path(folder_.path()), {"is a folder, allowed: files of rows"});
}

}  // namespace
}  // namespace evenkeel::data
