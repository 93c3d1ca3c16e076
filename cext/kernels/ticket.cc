#include "ticket.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "isa.h"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>
#endif

namespace rlflow::kernels {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;
constexpr const char* kForm = "rlflow.kernels.ticket 4";  // the number is that of the form of prepared files

std::string text_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::invalid_argument("there is no ticket " + path + "; rlflow.kernels.prepare(model, beside=True) writes one");
  std::string text(kMostBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kMostBytes) throw std::invalid_argument("the ticket " + path + " is too large");
  return text;
}

// A file's size and time, as Python's os.stat has them; a size of -1 where there is no such file.
struct Mark {
  long long size = -1, seconds = 0, nanoseconds = 0;
};

Mark mark_of(const std::string& path) {
#if defined(__unix__) || defined(__APPLE__)
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return {};
#if defined(__APPLE__)
  const auto time = found.st_mtimespec;
#else
  const auto time = found.st_mtim;
#endif
  return {static_cast<long long>(found.st_size), static_cast<long long>(time.tv_sec), static_cast<long long>(time.tv_nsec)};
#else
  throw std::invalid_argument("tickets are not read on this system: " + path);
#endif
}

// Whether the file is still of that size and time, "12 1764220000 987654321". Archives and images of containers keep whole
// seconds only.
bool matches(const Mark& found, const std::string& size, const std::string& seconds, const std::string& nanoseconds) {
  const bool same_time = std::to_string(found.nanoseconds) == nanoseconds || found.nanoseconds == 0;
  return found.size >= 0 && std::to_string(found.size) == size && std::to_string(found.seconds) == seconds && same_time;
}

// The first word of a line, which is cut off it.
std::string word(std::string& line) {
  const std::size_t end = line.find(' ');
  const std::string found = line.substr(0, end);
  line = end == std::string::npos ? "" : line.substr(end + 1);
  return found;
}

std::string processor_isa() {
  for (const Isa isa : {Isa::avx512, Isa::avx2})
    if (runs_here(isa)) return name_of(isa);
  return name_of(Isa::portable);
}

struct Reader {
  std::string model, runtime;
  Ticket ticket;
  bool knows_model = false, knows_runtime = false, knows_processor = false;

  void expect(bool holds, const std::string& reason) const {
    if (!holds) throw std::invalid_argument(reason + "; prepare the model again");
  }

  // `line`: the size and the time of the file, which are cut off it.
  void check_file(std::string& line, const std::filesystem::path& path) const {
    const std::string size = word(line), seconds = word(line), nanoseconds = word(line);
    expect(matches(mark_of(path.string()), size, seconds, nanoseconds), "the file " + path.string() + " has changed since the model was prepared");
  }

  void read(std::string line) {
    const std::string kind = word(line);
    if (kind == "runtime") {
      expect(line == runtime, "the model was prepared for ONNX Runtime " + line + ", and this is " + runtime);
      knows_runtime = true;
    } else if (kind == "processor") {
      expect(line == processor_isa(), "the model was prepared for a processor with " + line + ", and this one has " + processor_isa());
      knows_processor = true;
    } else if (kind == "model") {
      check_file(line, model);
      knows_model = true;
    } else if (kind == "weights") {
      const std::size_t name = line.find(' ', line.find(' ', line.find(' ') + 1) + 1);
      expect(name != std::string::npos, "the ticket has a line that this version does not know");
      check_file(line, std::filesystem::canonical(model).parent_path() / line.substr(name + 1));
    } else if (kind == "prepared") {
      const std::string size = word(line);
      expect(size == std::to_string(mark_of(line).size), "the prepared file " + line + " is not what was written");
      ticket.prepared = line;
    } else if (kind == "key") {
      ticket.key = line;
    } else {
      expect(false, "the ticket has a line that this version does not know");
    }
  }
};

}  // namespace

Ticket admitted(const std::string& path, const std::string& model, const std::string& runtime) {
  std::istringstream lines(text_of(path));
  std::string line;
  Reader reader{model, runtime, {}};
  reader.expect(std::getline(lines, line) && line == kForm, "the ticket " + path + " is of another version or damaged");
  while (std::getline(lines, line)) reader.read(line);
  const bool whole = reader.knows_model && reader.knows_runtime && reader.knows_processor;
  reader.expect(whole && !reader.ticket.prepared.empty() && !reader.ticket.key.empty(), "the ticket " + path + " is damaged");
  return reader.ticket;
}

}  // namespace rlflow::kernels
