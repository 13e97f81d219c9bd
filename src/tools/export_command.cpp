// weft export CHECKPOINT DIR: weights as a Hugging Face folder.
#include <memory>

#include "base/log.h"
#include "tools/commands.h"
#include "train/export.h"

namespace weft {

namespace {

struct ExportArguments {
  std::string from;
  std::string to;
  std::string dtype = "float32";
  int64_t max_file_bytes = ExportOptions().max_file_bytes;
};

ExitCode run_export(const ExportArguments& arguments) {
  const bool half = arguments.dtype == "bfloat16" || arguments.dtype == "bf16";
  const Exported exported =
      export_weights(arguments.from, arguments.to,
                     {.dtype = half ? Precision::Bfloat16 : Precision::Float32,
                      .max_file_bytes = arguments.max_file_bytes});
  log_line(cat("wrote ", arguments.to, "/  ", human_bytes(static_cast<double>(exported.bytes)),
               "  from ", exported.from));
  return ExitCode::Done;
}

}  // namespace

void add_export_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<ExportArguments>();
  Command command =
      app.add_command("export", "write the weights of a checkpoint as a Hugging Face folder");
  command
      .add_option("CHECKPOINT", arguments->from,
                  "folder of a checkpoint, of a run (its newest checkpoint) or of a model")
      .required();
  command.add_option("DIR", arguments->to, "folder to create").required();
  command.add_option("--dtype", arguments->dtype, "type of the weights")
      .one_of({"float32", "f32", "bfloat16", "bf16"})
      .show_default();
  command
      .add_option("--max-file-bytes", arguments->max_file_bytes,
                  "bytes of tensors per file; larger models are split into several")
      .range(1000, 1'000'000'000'000'000)
      .show_default();
  command.on_run([=] { finish(run_export(*arguments)); });
}

}  // namespace weft
