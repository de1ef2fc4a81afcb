#include "base/plain/files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

#include "base/plain/atomic_folder.h"
#include "base/plain/data_path.h"
#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/plain/mapped_files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class Files : public ::testing::Test {
 protected:
  Files() {}
  size_t entries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

// LibTorch's libraries export their own std::filesystem. cmake/FindLibTorch.cmake explains why it must not be used.
TEST(StandardLibrary, UsesTheFilesystemOfTheSystemLibrary) {
  std::uintmax_t (*const remove_all)(const fs::path&, std::error_code&) = fs::remove_all;
  Dl_info from{};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(remove_all), &from), 0);
  EXPECT_NE(std::string_view(from.dli_fname).find("libstdc++"), std::string_view::npos) << from.dli_fname;
}

TEST_F(Files, AtomicWriteReplacesTheFileAndLeavesNoTemporary) {
  const auto file = folder_ / "a.txt";
  write_file_atomic(file, "a long first content");
  const std::array<std::string_view, 3> pieces = {"new ", "", "content"};
  write_file_atomic(file, pieces);
  EXPECT_EQ(read_file(file), "new content");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, PathQueriesSucceedOrNameThePath) {
  write_file_atomic(folder_ / "a.txt", "abc");
  fs::create_symlink(folder_ / "loop", folder_ / "loop");
  EXPECT_TRUE(path_exists(folder_ / "a.txt") && is_file(folder_ / "a.txt") && is_folder(folder_));
  EXPECT_FALSE(path_exists(folder_ / "b") || is_folder(folder_ / "b") || is_folder(folder_ / "a.txt"));
  EXPECT_FALSE(path_exists(folder_ / "a.txt" / "below"));
  EXPECT_EQ(evenkeel::file_size(folder_ / "a.txt"), 3u);
  EXPECT_EQ(entries_of(folder_), (std::vector<fs::path>{folder_ / "a.txt", folder_ / "loop"}));
  const auto long_name = folder_ / std::string(300, 'x');
  for (const auto& ask : std::vector<std::function<void()>>{
           [&] { path_exists(folder_ / "loop"); }, [&] { is_folder(long_name); },
           [&] { evenkeel::file_size(folder_ / "b"); }, [&] { entries_of(folder_ / "b"); },
           [&] { make_folders(folder_ / "a.txt" / "below"); }, [&] { make_new_folder(folder_ / "loop"); },
           [&] { make_new_folder(folder_ / "new\nline"); }}) {
    try {
      ask();
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(folder_.string().substr(0, 20)), std::string::npos) << error.what();
    }
  }
  fs::remove(folder_ / "loop");
}

TEST_F(Files, PathsMustBeUtf8WithoutControlCharacters) {
  check_path_text("/data/模型 é/x", "--out");
  for (const std::string path : {"", "a\nb", "a\x1b[31m", "caf\xe9"})
    EXPECT_THROW(check_path_text(path, "--out"), Error);
  try {
    check_path_text("caf\xe9\n", "--out");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[config] --out is caf\\xe9\\n, allowed: a path of UTF-8 without control characters");
  }
}

TEST_F(Files, AnUnfinishedWriteKeepsTheOldFile) {
  const auto file = folder_ / "a.txt";
  write_file_atomic(file, "old");
  {
    AtomicFile out(file);
    out.write("half of the n");
  }
  EXPECT_EQ(read_file(file), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, AFailedWriteNamesTheFileAndKeepsTheOldOne) {
  fs::create_directory(folder_ / "target");
  write_file_atomic(folder_ / "target" / "x", "kept");
  try {
    write_file_atomic(folder_ / "target", "bytes");  // a rename cannot replace a folder that is not empty
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kIo);
    EXPECT_NE(std::string(error.what()).find("target: cannot be replaced"), std::string::npos);
  }
  EXPECT_EQ(read_file(folder_ / "target" / "x"), "kept");
  EXPECT_EQ(entries(), 1u);
  EXPECT_THROW(write_file_atomic(folder_ / "missing" / "x", ""), Error);
}

TEST_F(Files, ATemporaryFileOfAKilledProcessWithTheSameIdIsNoObstacle) {
  const auto file = folder_ / "a.txt";
  unsigned serial = 0;
  {
    const AtomicFile open(file);
    const auto name = entries_of(folder_).at(0).string();
    serial = static_cast<unsigned>(std::stoul(name.substr(name.rfind('-') + 1)));
  }
  for (unsigned next = 1; next <= 3; ++next)
    std::ofstream(concat(file.string(), ".part-", ::getpid(), "-", serial + next)) << "left";
  write_file_atomic(file, "content");
  EXPECT_EQ(read_file(file), "content");
  EXPECT_EQ(entries(), 4u) << "somebody else's files must stay";
}

TEST_F(Files, AppendedLinesFollowEachOther) {
  append_line(folder_ / "log", "one");
  append_line(folder_ / "log", "two");
  EXPECT_EQ(read_file(folder_ / "log"), "one\ntwo\n");
}

TEST_F(Files, AnAppendedLineReplacesAnIncompleteOne) {
  const auto file = folder_ / "log";
  for (const size_t length : {1, 4095, 4096, 4097, 9000})
    for (const std::string whole : {"", "\n", "one\n", "one\ntwo\n"}) {
      write_file_atomic(file, whole + std::string(length, 'x'));
      append_line(file, "next");
      EXPECT_EQ(read_file(file), whole + "next\n") << length;
    }
}

TEST_F(Files, ReadsFilesThatReportNoSize) {
  const auto lines = [](std::istream&& text) {
    return std::count(std::istreambuf_iterator<char>(text), std::istreambuf_iterator<char>(), '\n');
  };
  const auto status = read_file("/proc/self/status");
  EXPECT_TRUE(status.starts_with("Name:") && status.ends_with('\n')) << status;
  EXPECT_EQ(lines(std::istringstream(status)), lines(std::ifstream("/proc/self/status")));
}

TEST_F(Files, ReadsAPipeToItsEnd) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string content;
  for (int i = 0; i < 60'000; ++i) content += std::to_string(i);
  ::alarm(300);
  std::thread writer([&] { std::ofstream(pipe) << content; });
  const auto read = read_file(pipe);
  writer.join();
  EXPECT_TRUE(read == content) << read.size() << " bytes of " << content.size();
  std::thread again([&] { std::ofstream(pipe) << "four"; });
  EXPECT_NE(testing::refusal([&] { read_file(pipe, 3); }).find("pipe: longer than 3 bytes"), std::string::npos);
  again.join();
  ::alarm(0);
}

TEST_F(Files, AFileThatIsReadTakesItsSizeInMemory) {
  const std::string content(size_t{64} << 20, 'x');
  std::ofstream(folder_ / "large") << content;
  const auto bytes = read_file(folder_ / "large");
  EXPECT_TRUE(bytes == content) << bytes.size() << " bytes";
  EXPECT_LT(bytes.capacity(), content.size() / 10 * 11);
}

TEST_F(Files, RejectsReadingFoldersAndMissingFiles) {
  EXPECT_THROW(read_file(folder_), Error);
  EXPECT_THROW(read_file(folder_ / "missing"), Error);
  EXPECT_THROW(MappedFile{folder_}, Error);
  EXPECT_THROW(sha256_file(folder_ / "missing"), Error);
}

/// Opening a pipe for reading waits for a writer.
TEST_F(Files, APipeIsRejectedWithoutWaiting) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ::alarm(300);
  EXPECT_NE(testing::refusal([&] { MappedFile{pipe}; }).find("pipe: not a file"), std::string::npos);
  EXPECT_NE(testing::refusal([&] { sha256_file(pipe); }).find("pipe: not a file"), std::string::npos);
  ::alarm(0);
}

TEST_F(Files, ANewFolderMayExistIfItIsEmpty) {
  make_new_folder(folder_ / "a" / "b");
  make_new_folder(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  EXPECT_THROW(make_new_folder(folder_ / "a"), Error);
  write_file_atomic(folder_ / "file", "x");
  EXPECT_THROW(make_new_folder(folder_ / "file"), Error);
  EXPECT_THROW(make_new_folder(folder_ / "file" / "below"), Error);
}

TEST_F(Files, Sha256EqualsTheExamplesOfTheStandard) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1'000'000, 'a');
  write_file_atomic(folder_ / "million", million);
  EXPECT_EQ(sha256_file(folder_ / "million"), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(Files, AMappingShowsTheBytesEvenAfterTheFileIsReplaced) {
  write_file_atomic(folder_ / "m", "abc");
  const MappedFile mapped(folder_ / "m");
  write_file_atomic(folder_ / "m", "something else");
  const auto bytes = mapped.bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "abc");
  write_file_atomic(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

TEST_F(Files, InvalidJsonIsReportedWithFileAndByte) {
  write_file_atomic(folder_ / "x.json", "{\"a\": 1,}");
  try {
    load_json(folder_ / "x.json", kCheckpoint);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("x.json: not valid JSON at byte 9 of 9"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(parse_json("[1, 2]", "here").size(), 2u);
  EXPECT_THROW(parse_json("", "here"), Error);
  EXPECT_THROW(parse_json("\"\xff\"", "here"), Error);
}

TEST_F(Files, InstalledFolderContainsTheConfigs) { EXPECT_TRUE(fs::is_directory(shipped_folder() / "configs")); }

TEST_F(Files, ADataPathMayBeginWithTheVariableOfTheDataFolder) {
  ::setenv("EVENKEEL_DATA", "/some/where", 1);
  EXPECT_EQ(expand_data_path("$EVENKEEL_DATA/commonsense", "data.path"), "/some/where/commonsense");
  EXPECT_EQ(expand_data_path("data/commonsense", "data.path"), "data/commonsense");
  ::unsetenv("EVENKEEL_DATA");
  EXPECT_THROW(expand_data_path("$EVENKEEL_DATA/commonsense", "data.path"), Error);
}

TEST_F(Files, ADataPathMayNameAFileThatShips) {
  const auto rows = expand_data_path("builtin:four-organisations/harbour.jsonl", "clients.client[0].data");
  EXPECT_EQ(rows, shipped_folder() / "assets/four-organisations/harbour.jsonl");
  EXPECT_TRUE(is_file(rows));
}

TEST_F(Files, AtomicFolderAppearsCompleteOrNotAtAll) {
  const auto target = folder_ / "models" / "new";
  { AtomicFolder abandoned(target / ""); }
  EXPECT_TRUE(fs::is_empty(folder_ / "models"));
  fs::create_directories(folder_ / "models" / "new.part" / "left");  // left by a killed process
  write_file_atomic(folder_ / "models" / "new.part.lock", "");
  write_file_atomic(folder_ / "models" / "new.part.lock.part-17-0", "");  // by one that was locking
  fs::create_directory(target);
  AtomicFolder out(target);
  EXPECT_TRUE(fs::is_empty(out.path()));
  write_file_atomic(out.path() / "a", "content");
  EXPECT_TRUE(fs::is_empty(target));
  out.commit();
  EXPECT_EQ(read_file(target / "a"), "content");
  EXPECT_EQ(entries_of(folder_ / "models"), std::vector{target});
}

TEST_F(Files, AtomicFolderKeepsAPartFolderThatNobodyLocked) {
  fs::create_directory(folder_ / "new.part");
  write_file_atomic(folder_ / "new.part" / "thesis", "mine");
  for (int attempt = 0; attempt < 2; ++attempt) {  // the first leaves no lock with which the second would empty it
    const auto message = testing::refusal([&] { AtomicFolder out(folder_ / "new"); });
    EXPECT_NE(message.find(concat("[io] ", (folder_ / "new.part").string(), ": is not empty")), std::string::npos)
        << message;
    EXPECT_EQ(read_file(folder_ / "new.part" / "thesis"), "mine");
    EXPECT_EQ(entries_of(folder_), std::vector{folder_ / "new.part"});
  }
}

TEST_F(Files, AtomicFolderFollowsALink) {
  fs::create_directories(folder_ / "disk" / "empty");
  fs::create_directory(folder_ / "links");
  for (const auto* name : {"empty", "missing"}) {  // a link may lead to a folder that is not there yet
    const auto link = folder_ / "links" / name, target = folder_ / "disk" / name;
    fs::create_symlink(fs::path("../disk") / name, link);
    AtomicFolder out(link / "");
    EXPECT_EQ(out.path().parent_path(), fs::canonical(folder_ / "disk"));
    write_file_atomic(out.path() / "a", "content");
    out.commit();
    EXPECT_TRUE(fs::is_symlink(link)) << name;
    EXPECT_EQ(read_file(target / "a"), "content") << name;
    EXPECT_NE(testing::refusal([&] { AtomicFolder again(link); }).find("is not empty"), std::string::npos) << name;
  }
  EXPECT_EQ(entries_of(folder_ / "links").size(), 2u);
}

TEST_F(Files, AtomicFolderHasOneWriterAndReplacesNothing) {
  const auto refused = [](const fs::path& folder, std::string_view says) {
    try {
      AtomicFolder out(folder);
      ADD_FAILURE() << folder;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kIo);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  const AtomicFolder first(folder_ / "a");
  refused(folder_ / "a", "a.part is in use by process ");
  EXPECT_TRUE(fs::exists(first.path()));
  write_file_atomic(folder_ / "file", "mine");
  refused(folder_ / "file", "exists and is not a folder");
  refused(folder_, "exists already and is not empty");
  refused("/proc", "exists already and is not empty");
}

TEST_F(Files, AMissingFolderHasNoEntriesAndAFileCannotBeListed) {
  EXPECT_TRUE(entries_if_there(folder_ / "missing").empty());
  write_file_atomic(folder_ / "file", "mine");
  EXPECT_EQ(entries_if_there(folder_), std::vector{folder_ / "file"});
  const auto text = testing::refusal([&] { entries_if_there(folder_ / "file"); });
  EXPECT_NE(text.find("file: cannot be listed"), std::string::npos) << text;
}

TEST_F(Files, AFailedAtomicFolderReleasesItsLock) {
  const auto target = folder_ / "new";
  fs::create_directory(folder_ / "new.part");  // left by a killed process
  const int lowest = ::open("/dev/null", O_RDONLY);
  ::close(lowest);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit one_more{static_cast<rlim_t>(lowest) + 1, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &one_more);  // the lock takes the last descriptor; listing the folder fails
  const auto text = testing::refusal([&] { AtomicFolder out(target); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(text.find("new.part: cannot be listed"), std::string::npos) << text;
  EXPECT_EQ(testing::refusal([&] { AtomicFolder out(target); }), "no error");
}

using FilesDeathTest = Files;

TEST_F(FilesDeathTest, TruncationOfAMappedFileEndsTheProcessWithItsName) {
  const auto file = folder_ / "model.bin";
  write_file_atomic(file, std::string(size_t{1} << 20, 'x'));
  const MappedFile mapped(file);
  const auto read_beyond = [&] {
    fs::resize_file(file, 4096);
    volatile auto last = mapped.bytes().back();
    static_cast<void>(last);
  };
  EXPECT_EXIT(read_beyond(), ::testing::ExitedWithCode(1),
              "evenkeel: \\[io\\] .*model.bin: became shorter, or its disk failed, while it was read");
}

TEST_F(Files, ChangesOfAMappedFileAreDetected) {
  const auto file = folder_ / "model.bin";
  write_file_atomic(file, "twenty bytes of text");
  const MappedFile mapped(file);
  check_mapped_files();
  write_file_atomic(file, "another");  // after the rename the mapping still shows the first content
  check_mapped_files();
  const MappedFile second(file);
  fs::resize_file(file, 3);
  try {
    check_mapped_files();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model.bin: was changed while it was in use (7 bytes before, 3 now)"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Files, ReleasedPagesAreReadAgainUnchanged) {
  constexpr int64_t kMiB = 32;
  const std::string content(size_t{kMiB} << 20, 'x');
  write_file_atomic(folder_ / "model.bin", content);
  const MappedFile mapped(folder_ / "model.bin");
  const auto same = [&] { return std::memcmp(mapped.bytes().data(), content.data(), content.size()) == 0; };
  EXPECT_TRUE(same());
  EXPECT_EQ(testing::resident_kib(folder_), kMiB * 1024);
  release_mapped_pages();
  EXPECT_EQ(testing::resident_kib(folder_), 0);
  EXPECT_TRUE(same());
  advise_dontneed((64 << 20) - 1);
  EXPECT_EQ(testing::resident_kib(folder_), kMiB * 1024) << "too little to let go";
  advise_dontneed(1);
  EXPECT_EQ(testing::resident_kib(folder_), 0);
  EXPECT_TRUE(same());
}

}  // namespace
}  // namespace evenkeel
