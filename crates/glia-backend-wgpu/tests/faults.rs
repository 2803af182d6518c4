//! What is wrong comes back as an error from the call that it was in, and the backend works on.

use glia_backend_wgpu::{AdapterChoice, WgpuBackend, WgpuOptions};
use glia_core::{Backend, BackendError, DType, Op, Tensor, Unary};

fn gpu(options: WgpuOptions) -> WgpuBackend {
    WgpuBackend::new(options).expect("a Vulkan driver, if only Mesa's lavapipe")
}

fn relu(gpu: &WgpuBackend, x: &Tensor) -> Result<Tensor, BackendError> {
    gpu.execute(&Op::Unary(Unary::Relu), &[x]).map(|mut all| all.remove(0))
}

fn works(gpu: &WgpuBackend) {
    let x = Tensor::from_f32([3], &[-1.0, 0.0, 2.0]).unwrap();
    assert_eq!(relu(gpu, &x).unwrap().as_f32().unwrap(), [0.0, 0.0, 2.0]);
}

#[test]
fn a_tensor_that_claims_more_than_its_buffer_is_refused() {
    let gpu = gpu(WgpuOptions::default());
    let small = gpu.upload(&Tensor::from_f32([4], &[1.0; 4]).unwrap()).unwrap();
    let handle = small.device_handle().unwrap().clone();
    let large = Tensor::device(DType::F32, [100_000], handle).unwrap();
    assert!(gpu.download(&large).is_err());
    assert!(relu(&gpu, &large).is_err());
    let foreign = Tensor::device(DType::F32, [4], std::sync::Arc::new(7u8)).unwrap();
    assert!(gpu.download(&foreign).is_err());
    assert!(relu(&gpu, &foreign).is_err());
    works(&gpu);
}

#[test]
fn tensors_of_another_device_are_refused() {
    let (a, b) = (gpu(WgpuOptions::default()), gpu(WgpuOptions::default()));
    let of_a = a.upload(&Tensor::from_f32([4], &[1.0; 4]).unwrap()).unwrap();
    assert!(b.download(&of_a).is_err());
    assert_eq!(a.download(&of_a).unwrap().as_f32().unwrap(), [1.0; 4]);
}

#[test]
fn more_than_the_device_has_is_out_of_memory() {
    let limit = 8 << 20;
    let gpu = gpu(WgpuOptions::default().with_max_memory_bytes(limit));
    let large = Tensor::zeros(DType::F32, [4 << 20]).unwrap();
    match gpu.upload(&large) {
        Err(BackendError::OutOfMemory {
            needed_bytes,
            limit_bytes,
            ..
        }) => assert!(needed_bytes > limit_bytes && limit_bytes as u64 == limit),
        other => panic!("{other:?}"),
    }
    works(&gpu);
}

#[test]
fn a_lost_device_is_said_and_replaced() {
    let gpu = gpu(WgpuOptions::default());
    works(&gpu);
    let x = gpu.upload(&Tensor::from_f32([1], &[1.0]).unwrap()).unwrap();
    gpu.lose_device();
    assert!(matches!(gpu.download(&x), Err(BackendError::DeviceLost { .. })));
    works(&gpu);
}

#[test]
fn adapters_that_are_not_there_are_told_with_those_that_are() {
    let choices = [
        (AdapterChoice::Index(99), "99"),
        (AdapterChoice::Name("no such gpu".to_owned()), "no such gpu"),
    ];
    for (choice, said) in choices {
        let error = WgpuBackend::new(WgpuOptions::default().with_adapter(choice))
            .err()
            .map(|e| e.to_string());
        let error = error.expect("no such adapter");
        assert!(error.contains(said) && error.contains("wgpu:0 is "), "{error}");
    }
    let name = glia_backend_wgpu::adapters()[0].name.clone();
    works(&gpu(
        WgpuOptions::default().with_adapter(AdapterChoice::Name(name.to_uppercase()))
    ));
    works(&gpu(WgpuOptions::default().with_adapter(AdapterChoice::Index(0))));
}

#[test]
fn compiled_pipelines_are_kept_between_backends() {
    let folder = std::env::temp_dir().join(format!("glia-pipelines-{}", std::process::id()));
    let open = || gpu(WgpuOptions::default().with_pipeline_cache(folder.clone()));
    let first = open();
    works(&first);
    drop(first);
    let files: Vec<_> = std::fs::read_dir(&folder)
        .map(|d| d.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    let Some(file) = files.first() else {
        println!("SKIP: pipeline cache: the adapter keeps none");
        return;
    };
    works(&open());
    // Damaged ones are not used, and replaced.
    for bytes in [&b""[..], b"short", &[7; 4000]] {
        std::fs::write(file, bytes).unwrap();
        works(&open());
        assert!(std::fs::read(file).unwrap().len() > 8);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
